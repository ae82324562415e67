//! The result of an ADD in the shape of each specification version (`cni.md` A.5).

use super::failure::Failure;
use super::version;
use crate::json::to_go_text;
use crate::net::{Address, Family, Prefix};
use crate::resolv::Dns;
use serde::{Serialize, Serializer};

/// A network of a route as Go prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Destination(pub(crate) Option<Prefix>);

impl Serialize for Destination {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(prefix) => serializer.collect_str(&prefix),
            // What Go prints of a network that was not given.
            None => serializer.serialize_str("<nil>"),
        }
    }
}

fn text<S: Serializer>(address: &Option<Address>, serializer: S) -> Result<S::Ok, S::Error> {
    match address {
        Some(address) => serializer.collect_str(address),
        None => serializer.serialize_none(),
    }
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// A route, with its members in alphabetical order as 1.x prints them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Route {
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) advmss: i64,
    pub(crate) dst: Destination,
    #[serde(serialize_with = "text", skip_serializing_if = "Option::is_none")]
    pub(crate) gw: Option<Address>,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) mtu: i64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) priority: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scope: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) table: Option<i64>,
}

/// A route, with its members in the order in which 0.3.0 to 0.4.0 print them.
#[derive(Serialize)]
struct OrderedRoute<'a> {
    dst: &'a Destination,
    #[serde(serialize_with = "text", skip_serializing_if = "Option::is_none")]
    gw: Option<Address>,
    #[serde(skip_serializing_if = "is_zero")]
    mtu: i64,
    #[serde(skip_serializing_if = "is_zero")]
    advmss: i64,
    #[serde(skip_serializing_if = "is_zero")]
    priority: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<i64>,
}

impl<'a> From<&'a Route> for OrderedRoute<'a> {
    fn from(route: &'a Route) -> Self {
        let Route { advmss, dst, gw, mtu, priority, scope, table } = route;
        Self { dst, gw: *gw, mtu: *mtu, advmss: *advmss, priority: *priority, table: *table, scope: *scope }
    }
}

impl<'a> OrderedRoute<'a> {
    /// What 0.2.0 and older know of a route.
    fn old(route: &'a Route) -> Self {
        Self { dst: &route.dst, gw: route.gw, mtu: 0, advmss: 0, priority: 0, table: None, scope: None }
    }
}

/// One address of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IpConfig {
    /// The address with the length of its subnet.
    pub(crate) address: Prefix,
    pub(crate) gateway: Option<Address>,
}

/// The result of an ADD.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AddResult {
    pub(crate) ips: Vec<IpConfig>,
    /// A route that was given as `null` stays one.
    pub(crate) routes: Vec<Option<Route>>,
    pub(crate) dns: Dns,
}

/// The order in which versions before 1.0.0 print `dns`.
#[derive(Serialize)]
struct OrderedDns<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    nameservers: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    domain: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    search: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    options: &'a [String],
}

impl<'a> From<&'a Dns> for OrderedDns<'a> {
    fn from(dns: &'a Dns) -> Self {
        Self { nameservers: &dns.nameservers, domain: &dns.domain, search: &dns.search, options: &dns.options }
    }
}

/// 0.1.0 and 0.2.0.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Old<'a> {
    cni_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip4: Option<OldIp<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip6: Option<OldIp<'a>>,
    dns: OrderedDns<'a>,
}

#[derive(Serialize)]
struct OldIp<'a> {
    ip: String,
    #[serde(serialize_with = "text", skip_serializing_if = "Option::is_none")]
    gateway: Option<Address>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<OrderedRoute<'a>>,
}

/// 0.3.0 to 0.4.0.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Middle<'a> {
    cni_version: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ips: Vec<MiddleIp>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Option<OrderedRoute<'a>>>,
    dns: OrderedDns<'a>,
}

#[derive(Serialize)]
struct MiddleIp {
    version: &'static str,
    address: String,
    #[serde(serialize_with = "text", skip_serializing_if = "Option::is_none")]
    gateway: Option<Address>,
}

/// 1.0.0 and 1.1.0: members in alphabetical order.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct New<'a> {
    cni_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dns: Option<&'a Dns>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ips: Vec<NewIp>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    routes: &'a [Option<Route>],
}

#[derive(Serialize)]
struct NewIp {
    address: String,
    #[serde(serialize_with = "text", skip_serializing_if = "Option::is_none")]
    gateway: Option<Address>,
}

impl AddResult {
    /// The document for a configuration of this version (as it is written; empty means 0.1.0).
    pub(crate) fn to_text(&self, written: &str) -> Result<String, Failure> {
        let cni_version = if written.is_empty() { version::DEFAULT } else { written };
        Ok(match cni_version {
            "0.1.0" | "0.2.0" => to_go_text(&self.old(cni_version)?),
            "0.3.0" | "0.3.1" | "0.4.0" => to_go_text(&self.middle(cni_version)),
            _ => to_go_text(&self.new_form(cni_version)),
        })
    }

    fn old<'a>(&'a self, cni_version: &'a str) -> Result<Old<'a>, Failure> {
        let part = |family: Family| {
            let ip = self.ips.iter().find(|ip| ip.address.family() == family)?;
            let routes = self
                .routes
                .iter()
                .flatten()
                // A route without a destination counts as IPv6, as in the reference code.
                .filter(|route| route.dst.0.map_or(Family::V6, |dst| dst.family()) == family)
                .map(OrderedRoute::old)
                .collect();
            Some(OldIp { ip: ip.address.to_string(), gateway: ip.gateway, routes })
        };
        let (ip4, ip6) = (part(Family::V4), part(Family::V6));
        if ip4.is_none() && ip6.is_none() {
            return Err(Failure::internal("cannot convert: no valid IP addresses"));
        }
        Ok(Old { cni_version, ip4, ip6, dns: (&self.dns).into() })
    }

    fn middle<'a>(&'a self, cni_version: &'a str) -> Middle<'a> {
        let ips = self.ips.iter().map(|ip| MiddleIp {
            version: match ip.address.family() {
                Family::V4 => "4",
                Family::V6 => "6",
            },
            address: ip.address.to_string(),
            gateway: ip.gateway,
        });
        let routes = self.routes.iter().map(|route| route.as_ref().map(OrderedRoute::from));
        Middle { cni_version, ips: ips.collect(), routes: routes.collect(), dns: (&self.dns).into() }
    }

    fn new_form<'a>(&'a self, cni_version: &'a str) -> New<'a> {
        let ips = self.ips.iter().map(|ip| NewIp { address: ip.address.to_string(), gateway: ip.gateway });
        let dns = (!self.dns.is_empty()).then_some(&self.dns);
        New { cni_version, dns, ips: ips.collect(), routes: &self.routes }
    }
}

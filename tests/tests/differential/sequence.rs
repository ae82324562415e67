//! What a sequence is made of: calls of a plugin and changes that somebody else makes in the store. Every step stands
//! for itself, so that steps can be left out when a failing sequence is shrunk.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use plat_tests::call::Call;

/// Stands for the folder of the side in configurations, paths and messages.
pub(crate) const FOLDER: &str = "@DIR@";

/// One step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// A call of a plugin.
    Call(Box<CallStep>),
    /// A change in the store that no plugin makes.
    Foreign(Foreign),
}

/// Who answers a call on the subject's store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// The plugin under test.
    Subject,
    /// The original, on the store that the plugin under test has used.
    Original,
}

/// A call; what is none is not set.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallStep {
    pub(crate) by: By,
    pub(crate) command: Option<String>,
    pub(crate) container: Option<String>,
    pub(crate) ifname: Option<String>,
    pub(crate) netns: Option<String>,
    pub(crate) path: Option<String>,
    pub(crate) args: Option<String>,
    pub(crate) netns_override: Option<String>,
    pub(crate) input: Input,
}

/// Standard input.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Input {
    /// A configuration, possibly a wrong one.
    Config(Box<Config>),
    /// Text that is no configuration at all.
    Raw(String),
}

/// A network configuration. Values are JSON text, so that any of them can be wrong in any way.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Config {
    pub(crate) name: Option<String>,
    pub(crate) version: Option<String>,
    /// Instead of everything inside `ipam`; the empty text leaves the key out.
    pub(crate) ipam: Option<String>,
    pub(crate) old_style: Option<Range>,
    pub(crate) ranges: Option<Vec<Vec<Range>>>,
    pub(crate) runtime_ranges: Vec<Vec<Range>>,
    pub(crate) args_ips: Vec<String>,
    pub(crate) runtime_ips: Vec<String>,
    pub(crate) routes: Vec<String>,
    pub(crate) resolv_conf: Option<String>,
    pub(crate) data_dir: Option<String>,
    /// Further pairs, written last: at the top, and inside `ipam`.
    pub(crate) extra: Vec<(String, String)>,
    pub(crate) ipam_extra: Vec<(String, String)>,
    /// Keys in capitals.
    pub(crate) capitals: bool,
}

/// One range, its values JSON text.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Range {
    pub(crate) subnet: Option<String>,
    pub(crate) start: Option<String>,
    pub(crate) end: Option<String>,
    pub(crate) gateway: Option<String>,
}

/// A change that no plugin makes; paths are relative to the folder of the side.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Foreign {
    Write { path: String, content: Vec<u8>, mode: u32 },
    Folder(String),
    Link { path: String, target: String },
    Remove(String),
}

/// JSON text of a string without anything to escape.
pub(crate) fn quoted(text: impl AsRef<str>) -> String {
    format!("\"{}\"", text.as_ref())
}

fn object(pairs: Vec<(String, String)>) -> String {
    let pairs: Vec<_> = pairs.into_iter().map(|(key, value)| format!("{}:{value}", quoted(&key))).collect();
    format!("{{{}}}", pairs.join(","))
}

fn list(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(","))
}

impl Range {
    fn pairs(&self) -> Vec<(&'static str, String)> {
        [("subnet", &self.subnet), ("rangeStart", &self.start), ("rangeEnd", &self.end), ("gateway", &self.gateway)]
            .into_iter()
            .filter_map(|(key, value)| Some((key, value.clone()?)))
            .collect()
    }
}

impl Config {
    /// The text of the configuration, with [`FOLDER`] in it.
    pub(crate) fn render(&self) -> String {
        let key = |key: &str| if self.capitals { key.to_uppercase() } else { key.to_owned() };
        let sets = |sets: &[Vec<Range>]| {
            list(sets.iter().map(|set| {
                list(set.iter().map(|range| object(range.pairs().into_iter().map(|(k, v)| (key(k), v)).collect())))
            }))
        };
        let mut top = Vec::new();
        let mut push = |name: &str, value: &Option<String>| {
            if let Some(value) = value {
                top.push((key(name), value.clone()));
            }
        };
        push("cniVersion", &self.version);
        push("name", &self.name);
        push("type", &Some(quoted("ptp")));
        match &self.ipam {
            Some(text) if text.is_empty() => {}
            Some(text) => push("ipam", &Some(text.clone())),
            None => {
                let mut ipam = vec![(key("type"), quoted("host-local"))];
                let mut push = |name: &str, value: Option<String>| {
                    if let Some(value) = value {
                        ipam.push((key(name), value));
                    }
                };
                for (name, value) in self.old_style.iter().flat_map(Range::pairs) {
                    push(name, Some(value));
                }
                push("ranges", self.ranges.as_deref().map(sets));
                push("routes", (!self.routes.is_empty()).then(|| list(self.routes.clone())));
                push("resolvConf", self.resolv_conf.clone());
                push("dataDir", self.data_dir.clone());
                ipam.extend(self.ipam_extra.iter().cloned());
                top.push((key("ipam"), object(ipam)));
            }
        }
        if !self.args_ips.is_empty() {
            let cni = object(vec![(key("ips"), list(self.args_ips.clone()))]);
            top.push((key("args"), object(vec![(key("cni"), cni)])));
        }
        let mut runtime = Vec::new();
        if !self.runtime_ranges.is_empty() {
            runtime.push((key("ipRanges"), sets(&self.runtime_ranges)));
        }
        if !self.runtime_ips.is_empty() {
            runtime.push((key("ips"), list(self.runtime_ips.clone())));
        }
        if !runtime.is_empty() {
            top.push((key("runtimeConfig"), object(runtime)));
        }
        top.extend(self.extra.iter().cloned());
        object(top)
    }
}

impl CallStep {
    fn variables(&self) -> [(&'static str, &Option<String>); 7] {
        [
            ("CNI_COMMAND", &self.command),
            ("CNI_CONTAINERID", &self.container),
            ("CNI_NETNS", &self.netns),
            ("CNI_IFNAME", &self.ifname),
            ("CNI_ARGS", &self.args),
            ("CNI_PATH", &self.path),
            ("CNI_NETNS_OVERRIDE", &self.netns_override),
        ]
    }

    /// Whether the verb is `command`.
    pub(crate) fn is(&self, command: &str) -> bool {
        self.command.as_deref() == Some(command)
    }

    /// The input's text, with [`FOLDER`] in it.
    pub(crate) fn text(&self) -> String {
        match &self.input {
            Input::Config(config) => config.render(),
            Input::Raw(text) => text.clone(),
        }
    }

    /// The call of `program` in `folder`.
    pub(crate) fn call(&self, program: &Path, folder: &Path) -> Call {
        let place = folder.to_str().expect("a path in UTF-8");
        let mut call = Call::new(program, "");
        call.environment.clear();
        for (name, value) in self.variables() {
            if let Some(value) = value {
                call.set(name, value);
            }
        }
        call.input = self.text().replace(FOLDER, place).into_bytes();
        call.folder = folder.to_owned();
        call
    }
}

impl Foreign {
    /// Makes the change below `folder`. A change that is impossible there (a file where a folder should be) is none.
    pub(crate) fn apply(&self, folder: &Path) {
        let place = |path: &str| {
            let path = folder.join(path);
            if let Some(parent) = path.parent() {
                let _ = std::fs::create_dir_all(parent);
            }
            path
        };
        let remove = |path: &Path| {
            if path.symlink_metadata().is_ok_and(|m| m.is_dir()) {
                let _ = std::fs::remove_dir_all(path);
            } else {
                let _ = std::fs::remove_file(path);
            }
        };
        match self {
            // Removed first, as an editor or a restore does it: no program is known that overwrites an address file.
            Self::Write { path, content, mode } => {
                let path = place(path);
                remove(&path);
                if std::fs::write(&path, content).is_ok() {
                    let _ = std::fs::set_permissions(&path, PermissionsExt::from_mode(*mode));
                }
            }
            Self::Folder(path) => {
                let _ = std::fs::create_dir_all(place(path));
            }
            Self::Link { path, target } => {
                let path = place(path);
                remove(&path);
                let _ = std::os::unix::fs::symlink(target, path);
            }
            Self::Remove(path) => remove(&folder.join(path)),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(call) => {
                write!(f, "{}", if call.by == By::Subject { "subject: " } else { "original:" })?;
                for (name, value) in call.variables() {
                    if let Some(value) = value {
                        write!(f, " {name}={value:?}")?;
                    }
                }
                write!(f, "\n          {}", call.text())
            }
            Self::Foreign(Foreign::Write { path, content, mode }) => {
                write!(f, "foreign:  write {path} {mode:04o} \"{}\"", content.escape_ascii())
            }
            Self::Foreign(Foreign::Folder(path)) => write!(f, "foreign:  mkdir {path}"),
            Self::Foreign(Foreign::Link { path, target }) => write!(f, "foreign:  link {path} -> {target}"),
            Self::Foreign(Foreign::Remove(path)) => write!(f, "foreign:  remove {path}"),
        }
    }
}

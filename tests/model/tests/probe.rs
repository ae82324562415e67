//! Measuring scopes by hand.
use plat_model::explore::{all, shortest};
use plat_model::model::Model;
use plat_model::scope::Faults;
use plat_model::scopes::{ATOMIC, Plan, scope};

#[test]
fn probe() {
    let text = std::env::var("PROBE").unwrap_or_default();
    let mut parts = text.split('|');
    let mut next = || parts.next().unwrap_or_default().to_owned();
    let (cidr, sizes, before, faults) = (next(), next(), next(), next());
    let sizes: Vec<u8> = sizes.split(',').filter_map(|s| s.parse().ok()).collect();
    let clients: Vec<String> = parts.map(str::to_owned).collect();
    let clients: Vec<&str> = clients.iter().map(String::as_str).collect();
    let times = faults.chars().filter_map(|c| c.to_digit(10)).next().unwrap_or(0) as u8;
    let f = Faults {
        times,
        crashes: faults.contains('c'),
        conflicts: faults.contains('x'),
        lost_replies: faults.contains('l'),
        stale_looks: faults.contains('s'),
    };
    for atomic in [ATOMIC, 1] {
        let plan = Plan {
            name: "probe", atomic_writes: atomic, cidr: &cidr, block_sizes: &sizes, before: &before,
            clients: &clients, faults: f, mutation: None,
        };
        match all(&mut Model::new(scope(&plan)), 20_000_000) {
            Ok(summary) => println!("{summary}"),
            Err(trace) => {
                println!("{trace}");
                if let Some(trace) = shortest(&mut Model::new(scope(&plan)), 3_000_000) {
                    println!("SHORTEST {trace}");
                }
            }
        }
    }
}

//! Where the time of a call goes, for benchmarks.

use std::time::Instant;

/// The variable that asks for it: with `PLAT_TIMING=1` one line per phase goes to standard error, as
/// `plat-timing <phase> <microseconds>`.
const VARIABLE: &str = "PLAT_TIMING";

/// A watch that is read at the end of each phase.
pub(crate) struct Timing {
    /// None: nobody asked.
    last: Option<Instant>,
    phases: Vec<(&'static str, f64)>,
}

impl Timing {
    /// Starts the watch if the environment asks for it.
    pub(crate) fn start() -> Self {
        let asked = std::env::var_os(VARIABLE).is_some_and(|value| value == "1");
        Self { last: asked.then(Instant::now), phases: Vec::new() }
    }

    /// Ends a phase.
    pub(crate) fn mark(&mut self, phase: &'static str) {
        if let Some(last) = &mut self.last {
            let now = Instant::now();
            self.phases.push((phase, (now - *last).as_secs_f64() * 1e6));
            *last = now;
        }
    }

    /// Prints the phases.
    pub(crate) fn print(&self) {
        let lines: String = self
            .phases
            .iter()
            .map(|(phase, microseconds)| format!("plat-timing {phase} {microseconds:.1}\n"))
            .collect();
        if self.last.is_some() {
            eprint!("{lines}");
        }
    }
}

//! Makes a failing sequence smaller: leaves out steps, then parts of steps, as long as it still fails.

use crate::sequence::{By, Config, Input, Step};

/// Runs that shrinking may take.
const RUNS_MAX: usize = 400;

/// A smaller sequence for which `fails` is still true.
pub(crate) fn shrink(mut steps: Vec<Step>, mut fails: impl FnMut(&[Step]) -> bool) -> Vec<Step> {
    let mut runs = 0;
    let mut try_it = |candidate: &[Step]| {
        runs += 1;
        runs <= RUNS_MAX && fails(candidate)
    };
    let mut size = steps.len().div_ceil(2);
    while size > 0 {
        let mut start = 0;
        while start < steps.len() {
            let mut candidate = steps.clone();
            candidate.drain(start..(start + size).min(steps.len()));
            if try_it(&candidate) {
                steps = candidate;
            } else {
                start += size;
            }
        }
        size /= 2;
    }
    for place in 0..steps.len() {
        for simpler in simplifications() {
            let mut candidate = steps.clone();
            simpler(&mut candidate[place]);
            if candidate[place] != steps[place] && try_it(&candidate) {
                steps = candidate;
            }
        }
    }
    steps
}

fn simplifications() -> Vec<fn(&mut Step)> {
    fn config(step: &mut Step, change: fn(&mut Config)) {
        if let Step::Call(call) = step
            && let Input::Config(config) = &mut call.input
        {
            change(config);
        }
    }
    vec![
        |step| {
            if let Step::Call(call) = step {
                call.args = None;
            }
        },
        |step| {
            if let Step::Call(call) = step {
                call.by = By::Subject;
            }
        },
        |step| config(step, |c| c.routes.clear()),
        |step| config(step, |c| c.resolv_conf = None),
        |step| config(step, |c| c.args_ips.clear()),
        |step| config(step, |c| c.runtime_ips.clear()),
        |step| config(step, |c| c.runtime_ranges.clear()),
        |step| config(step, |c| c.extra.clear()),
        |step| config(step, |c| c.ipam_extra.clear()),
        |step| config(step, |c| c.capitals = false),
        |step| config(step, |c| c.ranges = None),
        |step| {
            config(step, |c| {
                if let Some(sets) = &mut c.ranges {
                    sets.truncate(1);
                }
            })
        },
        |step| {
            config(step, |c| {
                for set in c.ranges.iter_mut().flatten() {
                    set.truncate(1);
                }
            })
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence::Foreign;

    #[test]
    fn only_what_is_needed_stays() {
        let step = |n: usize| Step::Foreign(Foreign::Remove(n.to_string()));
        let steps: Vec<_> = (0..20).map(step).collect();
        let fails = |steps: &[Step]| steps.contains(&step(3)) && steps.contains(&step(17));
        assert_eq!(shrink(steps, fails), [step(3), step(17)]);
    }
}

//! Runs a sequence on two stores and judges every step: equal, different in a known way, or different.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use plat_tests::call::{End, Reply};
use plat_tests::tree::{Kind, Tree, snapshot};

use crate::deviations;
use crate::generate::FILES;
use crate::sequence::{By, CallStep, FOLDER, Step};

/// The plugins of a comparison.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    /// The plugin under test.
    pub(crate) subject: PathBuf,
    /// The original that it is compared with, and that takes turns with it.
    pub(crate) reference: PathBuf,
    /// Which deviations are known.
    pub(crate) known: Known,
}

/// Which deviations are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known {
    /// None: the two are the same program.
    Nothing,
    /// Those of our plugin from the newest original.
    Ours,
    /// Those of our plugin from the newest, and those of the newest from Debian's.
    OursAndDebian,
    /// Those of the newest original from Debian's.
    Debian,
}

impl Known {
    /// Whether the subject is our plugin.
    pub(crate) fn ours(self) -> bool {
        matches!(self, Self::Ours | Self::OursAndDebian)
    }

    /// Whether the reference is Debian's.
    pub(crate) fn debian(self) -> bool {
        matches!(self, Self::Debian | Self::OursAndDebian)
    }
}

/// What one call did on one side.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The reply, with [`FOLDER`] in the place of the side's folder.
    pub(crate) reply: Reply,
    /// The side's folder before.
    pub(crate) before: Tree,
    /// The side's folder afterwards.
    pub(crate) after: Tree,
}

/// One call on both sides.
#[derive(Debug)]
pub(crate) struct Case<'a> {
    pub(crate) known: Known,
    pub(crate) step: &'a CallStep,
    /// On the subject's store.
    pub(crate) a: &'a Outcome,
    /// On the reference's store.
    pub(crate) b: &'a Outcome,
}

/// The judgement of one call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing differs.
    Same,
    /// What differs is on the list, under these ids.
    Known(Vec<&'static str>),
    /// Something else differs.
    Different(&'static str),
}

/// How often each known deviation was met, and how many calls were made.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) calls: usize,
    pub(crate) known: BTreeMap<&'static str, usize>,
}

/// A step that differs.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What it looks like without the details that vary; equal for equal causes, as far as one can tell.
    pub(crate) signature: String,
    /// For people.
    pub(crate) report: String,
}

/// Runs a sequence below `folder`, which is emptied first.
pub(crate) fn run(pair: &Pair, steps: &[Step], folder: &Path, counts: &mut Counts) -> Result<(), Failure> {
    let sides = [folder.join("a"), folder.join("b")];
    for side in &sides {
        let _ = std::fs::remove_dir_all(side);
        std::fs::create_dir_all(side).expect("a folder for the test");
        for (name, content) in FILES {
            std::fs::write(side.join(name), content).expect("a file for the test");
        }
    }
    let [a, b] = &sides;
    let (mut before_a, mut before_b) = (tree(a), tree(b));
    for (number, step) in steps.iter().enumerate() {
        let call = match step {
            Step::Foreign(foreign) => {
                foreign.apply(a);
                foreign.apply(b);
                (before_a, before_b) = (tree(a), tree(b));
                continue;
            }
            Step::Call(call) => call,
        };
        let program = if call.by == By::Subject { &pair.subject } else { &pair.reference };
        let outcome_a = outcome(call, program, a, before_a);
        let outcome_b = outcome(call, &pair.reference, b, before_b);
        let case = Case { known: pair.known, step: call, a: &outcome_a, b: &outcome_b };
        counts.calls += 2;
        match judge(&case) {
            Verdict::Same => {}
            Verdict::Known(ids) => {
                for id in ids {
                    *counts.known.entry(id).or_default() += 1;
                }
            }
            Verdict::Different(what) => return Err(failure(number, what, &case)),
        }
        if deviations::same_trees(pair.known, &outcome_a.after, &outcome_b.after) {
            (before_a, before_b) = (outcome_a.after, outcome_b.after);
        } else {
            // The stores differ as they may: go on from the reference's.
            resynchronise(b, a, &outcome_b.after);
            (before_a, before_b) = (tree(a), outcome_b.after);
        }
    }
    Ok(())
}

fn tree(folder: &Path) -> Tree {
    snapshot(folder).expect("a readable store")
}

fn outcome(call: &CallStep, program: &Path, folder: &Path, before: Tree) -> Outcome {
    let mut reply = call.call(program, folder).run();
    let place = folder.to_str().expect("a path in UTF-8");
    for stream in [&mut reply.output, &mut reply.errors] {
        if let Ok(text) = str::from_utf8(stream) {
            *stream = text.replace(place, FOLDER).into_bytes();
        }
    }
    Outcome { reply, before, after: tree(folder) }
}

/// Makes `to` look like `from`, as a foreign program would: names go and come, our index stays.
fn resynchronise(from: &Path, to: &Path, wanted: &Tree) {
    for entry in tree(to).0.iter().rev() {
        let path = to.join(&entry.path);
        let _ = match entry.kind {
            // With the index that may be in it.
            Kind::Directory if wanted.get(&entry.path).is_none() => std::fs::remove_dir_all(path),
            Kind::Directory => Ok(()),
            _ => std::fs::remove_file(path),
        };
    }
    for entry in &wanted.0 {
        use std::os::unix::fs::PermissionsExt;
        let path = to.join(&entry.path);
        match &entry.kind {
            Kind::Directory => {
                let _ = std::fs::create_dir(&path);
            }
            Kind::File(content) => {
                std::fs::write(&path, content).expect("a file for the test");
                std::fs::set_permissions(&path, PermissionsExt::from_mode(entry.mode)).expect("a mode for the test");
            }
            Kind::Link(_) => {
                let target = std::fs::read_link(from.join(&entry.path)).expect("a link of the test");
                std::os::unix::fs::symlink(target, &path).expect("a link for the test");
            }
            Kind::Other => {}
        }
    }
}

fn judge(case: &Case) -> Verdict {
    let exact = case.step.by == By::Original;
    let known = if exact { Known::Nothing } else { case.known };
    let trees = deviations::same_trees(case.known, &case.a.after, &case.b.after);
    match deviations::same_replies(known, case) {
        Some(mut ids) if trees => {
            ids.extend(deviations::overlooked(&case.a.after, &case.b.after));
            return if ids.is_empty() { Verdict::Same } else { Verdict::Known(ids) };
        }
        _ => {}
    }
    if !exact && let Some(id) = deviations::explain(case) {
        return Verdict::Known(vec![id]);
    }
    Verdict::Different(if trees { "replies differ" } else { "stores differ" })
}

fn failure(number: usize, what: &'static str, case: &Case) -> Failure {
    let mut report = String::new();
    let step = case.step;
    let _ = writeln!(report, "{what} after step {number}\n--- subject's side: {}", case.a.reply);
    let _ = writeln!(report, "--- reference's side: {}", case.b.reply);
    let stores = |tree: &Tree| {
        let files = FILES.map(|(name, _)| name);
        Tree(tree.0.iter().filter(|entry| !files.contains(&entry.path.as_str())).cloned().collect())
    };
    let (a, b) = (stores(&case.a.after), stores(&case.b.after));
    for entry in b.0.iter().filter(|entry| !a.0.contains(entry)) {
        let _ = writeln!(report, "only with the reference: {entry}");
    }
    for entry in a.0.iter().filter(|entry| !b.0.contains(entry)) {
        let _ = writeln!(report, "only with the subject:   {entry}");
    }
    let _ = writeln!(report, "--- store before, of the reference:\n{}", stores(&case.b.before));
    let brief = |reply: &Reply| {
        let text = match reply.message() {
            Some(message) => format!("{} {message}", reply.code().unwrap_or(0)),
            None if reply.end == End::Exit(0) => "success".into(),
            None => format!("{:?}", reply.end),
        };
        text.split(|c: char| !c.is_ascii_alphabetic()).filter(|w| w.len() > 2).collect::<Vec<_>>().join(" ")
    };
    let signature = format!(
        "{what}: {} by {:?}: {} / {}",
        step.command.as_deref().unwrap_or("-"),
        step.by,
        brief(&case.a.reply),
        brief(&case.b.reply)
    );
    Failure { signature, report }
}

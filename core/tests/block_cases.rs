//! The `block` strategy by scenario: every file `core/tests/block/<area>/<name>.scenario` (its words: the README there).

#[path = "block/play/mod.rs"]
mod play;

use libtest_mimic::{Arguments, Failed, Trial};
use play::script;
use std::path::{Path, PathBuf};

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "scenario") {
            found.push(path);
        }
    }
}

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/block");
    let mut paths = Vec::new();
    files(&folder, &mut paths);
    // A failed case tells its line; the place in the test's own source tells nothing.
    std::panic::set_hook(Box::new(|_| {}));
    let mut trials = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("a file of text");
        let file = path.strip_prefix(&folder).expect("below the folder").with_extension("");
        for case in script::parse(&text) {
            let families: &[bool] = if case.has_twin { &[false, true] } else { &[false] };
            for is_twin in families {
                for (store, atomic_writes) in [("atomic", None), ("single-key", Some(1))] {
                    let family = if *is_twin { "v6" } else { "v4" };
                    let name = format!("{}: {} [{family}, {store}]", file.display(), case.name);
                    let case = case.clone();
                    let is_twin = *is_twin;
                    trials.push(Trial::test(name, move || {
                        script::run(&case, is_twin, atomic_writes).map_err(Failed::from)
                    }));
                }
            }
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

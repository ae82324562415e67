//! Replays the corpus of the fuzz targets (`tests/fuzz/corpus`) through what the targets do.

#[path = "../../tests/fuzz/common/mod.rs"]
mod common;

use std::path::Path;

/// Fewer files than this in a corpus mean that some got lost.
const FILES_MIN: usize = 10;

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/corpus").join(target);
    let mut paths: Vec<_> =
        folder.read_dir().expect("the corpus").map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert!(
        paths.len() >= FILES_MIN,
        "{} has {} files, at least {FILES_MIN} are expected",
        folder.display(),
        paths.len()
    );
    for path in paths {
        let bytes = read(&path);
        // The name of the file stands in the output of a failing test, before the panic.
        println!("{}", path.display());
        run(&bytes);
    }
}

#[expect(clippy::disallowed_methods, reason = "the core does no I/O, its tests may")]
fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("a readable file")
}

#[test]
fn cni_stdin() {
    replay("cni_stdin", common::cni_stdin);
}

#[test]
fn cni_args() {
    replay("cni_args", common::cni_args);
}

#[test]
fn store_contents() {
    replay("store_contents", common::store_contents);
}

#[test]
fn net() {
    replay("net", common::net);
}

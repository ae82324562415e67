//! The tool as a process: what it prints, how it ends, and what it leaves in the store.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const POOLS: &str = "\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata:
  name: pods
spec:
  cidr: 10.244.0.0/16
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata:
  name: tiny
  annotations: {plat-ipam/priority: \"10\"}
spec:
  cidr: 10.9.0.0/30
  blockSize: 31
";

/// What a run gave.
#[derive(Debug, PartialEq, Eq)]
struct Ran {
    status: i32,
    out: String,
    err: String,
}

fn plat(folder: &Path, arguments: &[&str], input: &str) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_plat"))
        .args(arguments)
        .current_dir(folder)
        .env("PLAT_STORE", format!("sqlite:{}", folder.join("ipam.db").display()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The tool may end without reading.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ran {
        status: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

fn check(folder: &Path, arguments: &[&str], status: i32, out: &str) {
    let ran = plat(folder, arguments, "");
    assert_eq!((ran.status, ran.out.as_str()), (status, out), "plat {arguments:?}: {}", ran.err);
}

fn with_pools() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("pools.yaml"), POOLS).unwrap();
    check(folder.path(), &["apply", "-f", "pools.yaml"], 0, "ippool/pods created\nippool/tiny created\n");
    folder
}

#[test]
fn what_is_applied_is_shown() {
    let folder = with_pools();
    let at = folder.path();
    check(at, &["apply", "-f", "pools.yaml"], 0, "ippool/pods unchanged\nippool/tiny unchanged\n");
    check(
        at,
        &["get", "ippools"],
        0,
        "NAME   CIDR            BLOCK   SELECTOR\n\
         pods   10.244.0.0/16   26      all()\n\
         tiny   10.9.0.0/30     31      all()\n",
    );
    check(at, &["list", "pool", "-o", "name"], 0, "ippool/pods\nippool/tiny\n");
    let wide = plat(at, &["get", "pool", "pods", "-o", "wide"], "");
    assert!(wide.out.contains("Workload,Tunnel   Automatic"), "{wide:?}");
    // What it prints can be applied again.
    let yaml = plat(at, &["get", "ippool", "pods", "-o", "yaml"], "");
    let again = plat(at, &["apply", "-f", "-"], &yaml.out);
    assert_eq!((again.status, again.out.as_str()), (0, "ippool/pods unchanged\n"), "{}", again.err);
    let list = plat(at, &["get", "ippools", "-o", "json"], "");
    let again = plat(at, &["apply", "-f", "-"], &list.out);
    assert_eq!(again.out, "ippool/pods unchanged\nippool/tiny unchanged\n", "{}", again.err);
    let missing = plat(at, &["get", "ippool", "none"], "");
    assert_eq!((missing.status, missing.err.as_str()), (1, "error: ippool/none: not found\n"));
}

#[test]
fn problems_have_a_place_and_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |text: &str, expected: &str| {
        let ran = plat(folder.path(), &["apply", "-f", "-"], text);
        assert_eq!((ran.status, ran.err.as_str(), ran.out.as_str()), (1, expected, ""), "{text}");
    };
    let pool = |spec: &str| {
        format!(
            "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata:\n  name: p\nspec:\n  cidr: 10.0.0.0/24\n{spec}"
        )
    };
    refused(
        &pool("  blocksize: 26\n"),
        "error: standard input:7:3: spec.blocksize: unknown key \"blocksize\": did you mean blockSize?\n",
    );
    refused(
        &pool("  blockSize: 19\n"),
        "error: standard input:7:3: spec.blockSize 19: not a block size of this family: give a number from 20 to 32, or \
         leave it out\n",
    );
    refused(
        &pool("  disabled: \"yes\"\n"),
        "error: standard input:7:3: spec.disabled \"yes\": not a truth value: write true or false\n",
    );
    refused(
        &pool("  nodeSelector: a ==\n"),
        "error: standard input:7:3: spec.nodeSelector \"a ==\": not a selector, column 5: a text in quotes was expected: \
         see docs/resources.md\n",
    );
    refused(
        &pool("").replace("10.0.0.0/24", "10.0.0.1/24"),
        "error: standard input:6:3: spec.cidr \"10.0.0.1/24\": it has bits beyond its length: write 10.0.0.0/24\n",
    );
    refused(
        &pool("").replace("IPPool", "IPPol"),
        "error: standard input:2:1: kind \"IPPol\": not a known kind: did you mean IPPool?\n",
    );
    let broken = plat(folder.path(), &["apply", "-f", "-"], "a: [1\n");
    assert_eq!(broken.status, 1);
    assert!(broken.err.starts_with("plat: standard input:"), "{broken:?}");
    assert!(!folder.path().join("ipam.db").exists(), "a refusal makes no store");
    let usage = plat(folder.path(), &["apply"], "");
    assert_eq!(usage.status, 2);
    let kind = plat(folder.path(), &["get", "ipols"], "");
    assert_eq!((kind.status, kind.err.as_str()), (1, "plat: unknown kind \"ipols\": did you mean ippools?\n"));
}

#[test]
fn a_dry_run_and_a_question_leave_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("pools.yaml"), POOLS).unwrap();
    let ran = plat(folder.path(), &["apply", "--dry-run", "-f", "pools.yaml"], "");
    assert_eq!(ran.out, "ippool/pods created (dry run)\nippool/tiny created (dry run)\n", "{}", ran.err);
    assert!(!folder.path().join("ipam.db").exists());
    let ran = plat(folder.path(), &["get", "ippools"], "");
    assert_eq!(ran.status, 1);
    assert!(ran.err.contains("there is no such store"), "{ran:?}");

    let folder = with_pools();
    let before = plat(folder.path(), &["get", "ippools", "-o", "json"], "").out;
    check(folder.path(), &["delete", "ippool", "tiny", "--dry-run"], 0, "ippool/tiny deleted (dry run)\n");
    let ran = plat(folder.path(), &["ipam", "explain", "--node", "n1", "--pool", "tiny"], "");
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(ran.out.contains("of the pool tiny (10.9.0.0/30)"), "{ran:?}");
    assert_eq!(plat(folder.path(), &["get", "ippools", "-o", "json"], "").out, before);
}

#[test]
fn how_full_pools_are_is_shown_and_refusals_are_explained() {
    let folder = with_pools();
    let at = folder.path();
    let shown = plat(at, &["ipam", "show"], "");
    assert!(shown.out.contains("| IP Pool  | 10.9.0.0/30   | 4         | 0 (0%)"), "{}", shown.out);
    check(at, &["ipam", "show", "--ip", "10.9.0.1"], 0, "10.9.0.1 is not assigned\n");
    check(at, &["ipam", "release", "--ip", "10.9.0.1"], 0, "10.9.0.1 was not assigned\n");
    let node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {zone: a}}\n";
    assert_eq!(plat(at, &["apply", "-f", "-"], node).out, "node/n1 created\n");
    let selective = POOLS.replace("  cidr: 10.9.0.0/30\n", "  cidr: 10.9.0.0/30\n  nodeSelector: zone == 'b'\n");
    let ran = plat(at, &["apply", "-f", "-"], &selective);
    assert_eq!(ran.out, "ippool/pods unchanged\nippool/tiny configured\n", "{}", ran.err);
    check(at, &["delete", "ippool", "pods"], 0, "ippool/pods deleted\n");
    check(
        at,
        &["ipam", "explain", "--node", "n1"],
        1,
        "no configured IPv4 pool may serve the request\n\
         pool tiny (10.9.0.0/30): its nodeSelector zone == 'b' does not match the node; 0 of 4 addresses in use, 4 free: \
         label the node, or change the nodeSelector of the pool tiny\n",
    );
    let configuration = "apiVersion: projectcalico.org/v3\nkind: IPAMConfiguration\nmetadata: {name: default}\n\
                         spec: {strictAffinity: true, maxBlocksPerHost: 2}\n";
    assert_eq!(plat(at, &["apply", "-f", "-"], configuration).status, 0);
    let shown = plat(at, &["ipam", "show", "--show-configuration"], "");
    assert!(shown.out.contains("| strictAffinity               | true "), "{}", shown.out);
}

#[test]
fn it_tells_of_itself() {
    let folder = tempfile::tempdir().unwrap();
    let version = plat(folder.path(), &["--version"], "");
    assert!(version.out.contains(plat_runtime::CORE_SHA256), "{version:?}");
    assert!(plat(folder.path(), &["completions", "bash"], "").out.contains("_plat()"));
    assert!(plat(folder.path(), &["man"], "").out.contains(".TH plat 1"));
    assert_eq!(plat(folder.path(), &["man", "pages"], "").status, 0);
    assert!(folder.path().join("pages/plat-ipam-show.1").is_file());
}

//! The tool as a process: what it prints, how it ends, and what it leaves in the store.

use plat_core::ipam::{Assignment, Holder};
use plat_runtime::{Core, Settings};
use plat_stores::clock::SystemClock;
use plat_stores::sqlite::{Options, SqliteStore};
use plat_tests::call::Call;
use plat_tests::{need, peers};
use std::collections::BTreeMap;
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

/// All files below a folder with their content.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            found.insert(format!("{name}/"), Vec::new());
            found.extend(files(&path).into_iter().map(|(below, content)| (format!("{name}/{below}"), content)));
        } else {
            found.insert(path.file_name().unwrap().to_string_lossy().into_owned(), std::fs::read(&path).unwrap());
        }
    }
    found
}

/// Assigns an address to a pod of a node.
fn assign(folder: &Path, node: &str, handle: &str) -> String {
    let options = Options { exclusive: true, lock_wait_max: std::time::Duration::from_secs(10), create: true };
    let mut store = SqliteStore::new(folder.join("ipam.db"), options);
    let mut item = Assignment::new(Holder::Host(node.to_owned()), 1, 0);
    item.handle = Some(handle.to_owned());
    for (name, value) in [("node", node), ("namespace", "default"), ("pod", handle)] {
        item.attributes.insert(name.to_owned(), value.to_owned());
    }
    let mut instance = Core::embedded().unwrap().instance();
    let granted = instance.assign(&Settings::new("test"), &[item], &mut store, &mut SystemClock).unwrap();
    granted[0].grants[0].address.to_string()
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
    assert_eq!((kind.status, kind.err.as_str()), (2, "plat: unknown kind \"ipols\": did you mean ippools?\n"));
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

const TINY: &str = "\
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: tiny}
spec: {cidr: 10.9.0.0/30, blockSize: 31}
";

/// A pool of two blocks of two: n1 has one and a half, n2 borrows the rest of n1's second.
fn with_addresses() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("tiny.yaml"), TINY).unwrap();
    check(at, &["create", "-f", "tiny.yaml"], 0, "ippool/tiny created\n");
    let given: Vec<String> =
        [("n1", "a"), ("n1", "b"), ("n1", "c"), ("n2", "d")].iter().map(|(node, pod)| assign(at, node, pod)).collect();
    let mut sorted = given.clone();
    sorted.sort();
    assert_eq!(sorted, ["10.9.0.0", "10.9.0.1", "10.9.0.2", "10.9.0.3"], "{given:?}");
    folder
}

#[test]
fn blocks_affinities_and_handles_are_shown_and_only_read() {
    let folder = with_addresses();
    let at = folder.path();
    check(
        at,
        &["get", "blocks"],
        0,
        "CIDR          AFFINITY   UNALLOCATED\n10.9.0.0/31   host:n1    0\n10.9.0.2/31   host:n1    0\n",
    );
    check(at, &["get", "block", "10.9.0.2/31", "-o", "name"], 0, "ipamblock/10-9-0-2-31\n");
    let affinities = plat(at, &["get", "affinities", "-o", "json"], "");
    let list: serde_json::Value = serde_json::from_str(&affinities.out).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 2, "{affinities:?}");
    assert_eq!(list["items"][0]["spec"]["state"], "confirmed");
    check(at, &["get", "handles", "-o", "name"], 0, "ipamhandle/a\nipamhandle/b\nipamhandle/c\nipamhandle/d\n");
    let one = plat(at, &["get", "handle", "d", "-o", "yaml"], "");
    assert!(one.out.contains("handleID: d\n"), "{one:?}");
    let missing = plat(at, &["get", "handle", "none"], "");
    assert_eq!((missing.status, missing.err.as_str()), (1, "error: ipamhandle/none: not found\n"));
    let refused = plat(at, &["delete", "block", "10-9-0-2-31"], "");
    assert_eq!(refused.status, 2);
    assert!(refused.err.contains("only read: see plat ipam release"), "{refused:?}");
    let near = plat(at, &["get", "handels"], "");
    assert_eq!((near.status, near.err.as_str()), (2, "plat: unknown kind \"handels\": did you mean handles?\n"));
}

#[test]
fn addresses_are_shown_with_their_owners_and_released() {
    let folder = with_addresses();
    let at = folder.path();
    check(
        at,
        &["ipam", "show", "--show-blocks"],
        0,
        "+----------+-------------+-----------+------------+--------------+----------+\n\
         | GROUPING | CIDR        | IPS TOTAL | IPS IN USE | IPS RESERVED | IPS FREE |\n\
         +----------+-------------+-----------+------------+--------------+----------+\n\
         | IP Pool  | 10.9.0.0/30 | 4         | 4 (100%)   | 0 (0%)       | 0 (0%)   |\n\
         | Block    | 10.9.0.0/31 | 2         | 2 (100%)   | 0 (0%)       | 0 (0%)   |\n\
         | Block    | 10.9.0.2/31 | 2         | 2 (100%)   | 0 (0%)       | 0 (0%)   |\n\
         +----------+-------------+-----------+------------+--------------+----------+\n",
    );
    let borrowed = plat(at, &["ipam", "show", "--show-borrowed"], "");
    assert_eq!(borrowed.out.lines().count(), 5, "{}", borrowed.out);
    assert!(borrowed.out.contains("| n2 "), "{}", borrowed.out);
    assert!(borrowed.out.contains("| default/d "), "{}", borrowed.out);
    let shown = plat(at, &["ipam", "show", "-o", "json"], "");
    let value: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!((&value["pools"][0]["inUse"], &value["pools"][0]["borrowed"]), (&"4".into(), &"1".into()), "{value}");

    let handle: serde_json::Value =
        serde_json::from_str(&plat(at, &["get", "handle", "d", "-o", "json"], "").out).unwrap();
    assert_eq!(handle["spec"]["block"].as_object().unwrap().len(), 1, "{handle}");
    let dry = plat(at, &["ipam", "release", "--handle", "d", "--dry-run"], "");
    let address = dry.out.split(' ').next().unwrap().to_owned();
    assert_eq!(dry.out, format!("{address} would be released (dry run)\n"));
    let one = plat(at, &["ipam", "show", "--ip", &address], "");
    assert!(
        one.out
            .starts_with(&format!("IP {address} is in use\nHandle ID: d\nOwner:\n  namespace: default\n  node: n2\n")),
        "{}",
        one.out
    );
    let full = plat(at, &["ipam", "explain", "--node", "n3"], "");
    assert_eq!(full.status, 1);
    assert!(full.out.contains("pool tiny (10.9.0.0/30): "), "{}", full.out);
    check(at, &["ipam", "release", "--handle", "d"], 0, &format!("{address} released\n"));
    check(at, &["ipam", "release", "--ip", &address], 0, &format!("{address} was not assigned\n"));
    let again = plat(at, &["ipam", "release", "--handle", "d"], "");
    assert_eq!((again.status, again.err.as_str()), (1, "error: handle d: it holds no address\n"));
    let refused = plat(at, &["delete", "ippool", "tiny"], "");
    assert_eq!(refused.status, 1);
    assert!(refused.err.contains("3 addresses of the pool are in use"), "{refused:?}");
    let forced = plat(at, &["delete", "ippool", "tiny", "--force"], "");
    assert_eq!((forced.status, forced.out.as_str()), (0, "ippool/tiny deleted\n"));
    assert!(forced.err.contains("stay held until they are released"), "{forced:?}");
}

#[test]
fn the_configuration_is_changed_by_calicoctls_options() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let configure = |arguments: &[&str]| plat(at, &[&["ipam", "configure"], arguments].concat(), "");
    let dry = configure(&["--strictaffinity=true", "--dry-run"]);
    assert_eq!((dry.status, dry.out.as_str()), (0, "ipamconfiguration/default created (dry run)\n"), "{dry:?}");
    assert!(!at.join("ipam.db").exists());
    assert_eq!(configure(&["--strictaffinity=true"]).out, "ipamconfiguration/default created\n");
    let more =
        configure(&["--max-blocks-per-host=3", "--ip-cooldown-seconds=60", "--kubevirt-ip-persistence=Disabled"]);
    assert_eq!(more.out, "ipamconfiguration/default configured\n", "{more:?}");
    let kept: serde_json::Value =
        serde_json::from_str(&plat(at, &["get", "ipamconfiguration", "default", "-o", "json"], "").out).unwrap();
    let expected = serde_json::json!({
        "strictAffinity": true, "maxBlocksPerHost": 3, "ipCooldownSeconds": 60,
        "kubeVirtVMAddressPersistence": "Disabled",
    });
    assert_eq!(kept["spec"], expected);
    let refused = configure(&["--max-blocks-per-host=1000001"]);
    assert_eq!(refused.status, 1);
    assert!(refused.err.contains("spec.maxBlocksPerHost 1000001: out of range"), "{refused:?}");
    for wrong in [&[][..], &["--strictaffinity=maybe"], &["--max-blocks-per-host=x"]] {
        assert_eq!(configure(wrong).status, 2, "{wrong:?}");
    }
}

#[test]
fn whatever_only_looks_leaves_each_byte_as_it_is() {
    let folder = with_addresses();
    let at = folder.path();
    let bigger = TINY.replace("blockSize: 31", "blockSize: 31, disabled: true");
    std::fs::write(at.join("bigger.yaml"), bigger).unwrap();
    // SQLite's index of its log is memory that processes share, and no part of what is stored.
    let stored = || files(at).into_iter().filter(|(name, _)| !name.ends_with("-shm")).collect::<BTreeMap<_, _>>();
    let before = stored();
    for (arguments, status) in [
        (&["apply", "-f", "bigger.yaml", "--dry-run"][..], 0),
        (&["create", "-f", "bigger.yaml", "--dry-run"], 1),
        (&["delete", "-f", "bigger.yaml", "--dry-run", "--force"], 0),
        (&["delete", "ippool", "tiny", "--dry-run"], 1),
        (&["ipam", "configure", "--strictaffinity=true", "--dry-run"], 0),
        (&["ipam", "release", "--ip", "10.9.0.0", "--dry-run"], 0),
        (&["ipam", "release", "--handle", "a", "--dry-run"], 0),
        (&["ipam", "explain", "--node", "n1"], 1),
        (&["ipam", "show", "--show-blocks"], 0),
        (&["ipam", "show", "--show-borrowed"], 0),
        (&["ipam", "show", "--ip", "10.9.0.0"], 0),
        (&["get", "blocks", "-o", "wide"], 0),
        (&["get", "ippools", "-o", "yaml"], 0),
    ] {
        let ran = plat(at, arguments, "");
        assert_eq!(ran.status, status, "{arguments:?}: {ran:?}");
        assert!(stored() == before, "plat {arguments:?} changed the store");
    }
}

#[test]
fn a_list_is_deleted_as_it_was_printed() {
    let folder = with_pools();
    let at = folder.path();
    let list = plat(at, &["get", "ippools", "-o", "yaml"], "").out;
    let ran = plat(at, &["delete", "-f", "-", "-o", "name"], &list);
    assert_eq!((ran.status, ran.out.as_str()), (0, "ippool/pods\nippool/tiny\n"), "{ran:?}");
    let refused = plat(at, &["delete", "-f", "-"], "kind: List\nitems:\n- kind: IPPool\n  metadata: {}\n");
    assert_eq!(
        (refused.status, refused.err.as_str()),
        (1, "plat: standard input:4:3: metadata.name: missing: name the object\n")
    );
}

#[test]
fn stores_that_cannot_be_used_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(
        at.join("no.db"),
        "this is no database, and it is longer than a header of SQLite would be: ".repeat(9),
    )
    .unwrap();
    let refused = |store: &str, arguments: &[&str], status: i32, says: &str| {
        let ran = plat(at, &[&["--store", store], arguments].concat(), "");
        assert_eq!(ran.status, status, "{ran:?}");
        assert!(ran.err.contains(says) && ran.out.is_empty(), "{ran:?}");
    };
    refused("sqlite:none.db", &["get", "ippools"], 1, "none.db: there is no such store: name another with --store");
    refused("sqlite:no.db", &["get", "ippools"], 1, "no.db is no SQLite file");
    refused("etcd:x", &["get", "ippools"], 2, "--store \"etcd:x\": use \"sqlite\"");
    refused("dir:none", &["ipam", "show"], 1, "open none: no such file or directory");
    refused("dir:.", &["get", "ippools"], 1, "plat get needs --store sqlite:PATH");
    refused("dir:.", &["ipam", "show", "--show-blocks"], 2, "has none of these");
    refused("sqlite:no.db", &["ipam", "show", "--network", "n"], 2, "only --store dir:PATH has networks");
}

#[test]
fn a_reader_that_leaves_is_no_failure_worth_a_word() {
    let folder = with_pools();
    let mut child = Command::new(env!("CARGO_BIN_EXE_plat"))
        .args(["get", "ippools"])
        .env("PLAT_STORE", format!("sqlite:{}", folder.path().join("ipam.db").display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(1), &b""[..]));
}

/// A dataDir with addresses as host-local writes them.
fn data_dir() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for network in ["net", "other"] {
        std::fs::create_dir(folder.path().join(network)).unwrap();
    }
    for (path, content) in [
        ("net/10.0.0.2", "c1\r\neth0"),
        ("net/fd00::2", "c1\r\neth0"),
        ("net/10.0.0.3", "c2"),
        ("net/10.0.0.4", "c2\r\neth0"),
        ("net/10.0.0.5", ""),
        ("other/10.0.0.2", "c9\r\neth0"),
    ] {
        std::fs::write(folder.path().join(path), content).unwrap();
    }
    folder
}

#[test]
fn a_directory_is_shown_and_stays_as_it_is() {
    let folder = data_dir();
    let at = folder.path();
    let before = files(at);
    let shown = |arguments: &[&str], expected: &str| {
        check(at, &[&["--store", "dir:.", "ipam", "show"], arguments].concat(), 0, expected);
    };
    shown(
        &[],
        "+---------+----------+-----------+-----------+\n\
         | NETWORK | IP       | CONTAINER | INTERFACE |\n\
         +---------+----------+-----------+-----------+\n\
         | net     | 10.0.0.2 | c1        | eth0      |\n\
         | net     | 10.0.0.3 | c2        | -         |\n\
         | net     | 10.0.0.4 | c2        | eth0      |\n\
         | net     | 10.0.0.5 | -         | -         |\n\
         | net     | fd00::2  | c1        | eth0      |\n\
         | other   | 10.0.0.2 | c9        | eth0      |\n\
         +---------+----------+-----------+-----------+\n",
    );
    shown(
        &["--network", "other", "-o", "yaml"],
        "networks:\n- addresses:\n  - container: c9\n    interface: eth0\n    ip: 10.0.0.2\n    note: null\n  name: other\n",
    );
    shown(&["--ip", "fd00::2"], "IP fd00::2 is in use\nNetwork: net\nContainer: c1\nInterface: eth0\n");
    shown(&["--ip", "10.0.0.5"], "IP 10.0.0.5 is in use\nNetwork: net\nHeld by nobody: empty\n");
    shown(&["--ip", "10.0.0.9"], "10.0.0.9 is not assigned\n");
    check(
        at,
        &["--store", "dir:.", "ipam", "release", "--handle", "c1", "--dry-run"],
        0,
        "10.0.0.2 would be released (dry run): network net\nfd00::2 would be released (dry run): network net\n",
    );
    assert_eq!(files(at), before);
}

#[test]
fn addresses_of_a_directory_are_released_with_their_owner() {
    let folder = data_dir();
    let at = folder.path();
    let release = |arguments: &[&str]| plat(at, &[&["--store", "dir:.", "ipam", "release"], arguments].concat(), "");
    for (arguments, says) in [
        (&["--ip", "10.0.0.2"][..], "the networks net and other hold it: name one with --network"),
        (
            &["--ip", "10.0.0.2", "--network", "net"],
            "c1/eth0 also holds fd00::2: release all of it with --handle c1/eth0",
        ),
        (&["--ip", "10.0.0.2", "--network", "nte"], "has no such network: it has net, other"),
        (&["--ip", "10.0.0.5"], "no container holds it in the network net (empty)"),
        (&["--handle", "c1/eth1"], "container c1/eth1: it holds no address"),
    ] {
        let before = files(at);
        let ran = release(arguments);
        assert_eq!(ran.status, 1, "{ran:?}");
        assert!(ran.err.contains(says), "{ran:?}");
        assert_eq!(files(at), before);
    }
    // A record of the container alone, beside one with an interface.
    assert_eq!(release(&["--ip", "10.0.0.3"]).out, "10.0.0.3 released: network net\n");
    assert_eq!(release(&["--handle", "c1"]).out, "10.0.0.2 released: network net\nfd00::2 released: network net\n");
    assert_eq!(release(&["--ip", "10.0.0.3"]).out, "10.0.0.3 was not assigned\n");
    let left: Vec<String> =
        files(at).into_keys().filter(|name| name.contains("/10.") || name.contains("/fd")).collect();
    assert_eq!(left, ["net/10.0.0.4", "net/10.0.0.5", "other/10.0.0.2"]);
}

#[test]
fn what_the_real_host_local_made_is_shown_and_released() {
    let host_local = need!(peers::host_local_newest());
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let configuration = serde_json::json!({
        "cniVersion": "1.0.0", "name": "real", "type": "bridge",
        "ipam": {"type": "host-local", "dataDir": at, "ranges": [[{"subnet": "10.7.0.0/24"}], [{"subnet": "fd07::/64"}]]},
    })
    .to_string();
    for container in ["one", "two"] {
        let reply = Call::of(&host_local, "ADD", container, "eth0", configuration.clone()).run();
        assert!(reply.is_success(), "{reply:?}");
    }
    let plat = |arguments: &[&str]| plat(at, &[&["--store", "dir:."], arguments].concat(), "");
    let shown = plat(&["ipam", "show", "-o", "json"]);
    let value: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
    let network = &value["networks"][0];
    assert_eq!((&network["name"], network["addresses"].as_array().unwrap().len()), (&"real".into(), 4), "{value}");
    let released = plat(&["ipam", "release", "--handle", "one/eth0"]);
    assert_eq!(released.out, "10.7.0.2 released: network real\nfd07::2 released: network real\n", "{released:?}");
    // host-local sees it so too.
    assert!(!Call::of(&host_local, "CHECK", "one", "eth0", configuration.clone()).run().is_success());
    assert!(Call::of(&host_local, "CHECK", "two", "eth0", configuration).run().is_success());
}

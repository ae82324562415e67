//! plat-ipam as a process: what the shell around the core adds. What the core answers is tested by `tests/`.
#![allow(missing_docs, reason = "a test has no users")]

use serde_json::Value;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A call of plat-ipam.
struct Call {
    command: Command,
    input: Vec<u8>,
}

fn call(name: &str) -> Call {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plat-ipam"));
    command.arg0(name).env_clear();
    Call { command, input: Vec::new() }
}

/// An ADD, DEL or the like under host-local's name, with a store in `folder`.
fn cni(verb: &str, folder: &Path, more: &str) -> Call {
    let mut call = call("/opt/cni/bin/host-local");
    call.command.envs([
        ("CNI_COMMAND", verb),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", "/var/run/netns/none"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/opt/cni/bin"),
    ]);
    call.input = format!(
        r#"{{"cniVersion": "1.0.0", "name": "net", "type": "ptp", "ipam": {{"type": "host-local", "dataDir": "{}",
            "ranges": [[{{"subnet": "10.1.0.0/29"}}]]{more}}}}}"#,
        folder.display()
    )
    .into_bytes();
    call
}

impl Call {
    fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    fn run(mut self) -> Output {
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap();
        // A program that does not read its input may close it.
        let _ = child.stdin.take().unwrap().write_all(&self.input);
        child.wait_with_output().unwrap()
    }
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn version_needs_no_input() {
    let mut call = call("host-local").env("CNI_COMMAND", "VERSION");
    // A writer that never closes: whoever reads to the end hangs.
    let mut child = call.command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let input = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(input);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(json(&output)["supportedVersions"].as_array().unwrap().len(), 7);
}

#[test]
fn a_call_uses_the_directory_that_its_configuration_names() {
    let folder = tempfile::tempdir().unwrap();
    let output = cni("ADD", folder.path(), "").run();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(json(&output)["ips"][0]["address"], "10.1.0.2/29");
    assert_eq!(std::fs::read(folder.path().join("net/10.1.0.2")).unwrap(), b"c1\r\neth0");
    let output = cni("DEL", folder.path(), "").run();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "{output:?}");
    assert!(!folder.path().join("net/10.1.0.2").exists());
}

#[test]
fn the_name_chooses_the_personality() {
    let output = call("/usr/lib/cni/host-local").run();
    assert!(text(&output.stderr).starts_with("CNI host-local plugin"), "{output:?}");
    let output = call("plat-ipam").run();
    assert!(text(&output.stderr).starts_with("CNI plat-ipam plugin"), "{output:?}");
}

#[test]
fn the_own_network_namespace_is_recognised() {
    let folder = tempfile::tempdir().unwrap();
    let output = cni("ADD", folder.path(), "").env("CNI_NETNS", "/proc/self/ns/net").run();
    assert_eq!((output.status.code(), &json(&output)["code"]), (Some(1), &Value::from(8)), "{output:?}");
    assert!(!folder.path().join("net").exists(), "something was touched before the refusal");
}

#[test]
fn relative_paths_start_at_the_working_directory() {
    let folder = tempfile::tempdir().unwrap();
    let mut call = cni("ADD", Path::new("networks"), "");
    call.command.current_dir(folder.path());
    let output = call.run();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(folder.path().join("networks/net/10.1.0.2").exists());
}

#[test]
fn log_lines_go_to_standard_error_by_level_and_to_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log");
    let more = format!(r#", "logFile": "{}""#, file.display());
    // A full network: STATUS warns under host-local's name.
    for (index, verb) in ["ADD", "ADD", "ADD", "ADD", "ADD", "STATUS"].into_iter().enumerate() {
        let mut call = cni(verb, &folder.path().join("networks"), &more).env("CNI_CONTAINERID", &format!("c{index}"));
        let input = text(&call.input).replace("1.0.0", "1.1.0");
        call.input = input.into_bytes();
        let output = call.run();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(text(&output.stderr).contains("warn: "), verb == "STATUS", "{output:?}");
    }
    let status = |level: &str| {
        let mut call = cni("STATUS", &folder.path().join("networks"), &more).env("PLAT_LOG", level);
        call.input = text(&call.input).replace("1.0.0", "1.1.0").into_bytes();
        text(&call.run().stderr).to_owned()
    };
    assert_eq!(status("error"), "");
    assert!(status("info").contains("warn: "));
    assert!(status("loud").starts_with("warn: PLAT_LOG=loud is no level"), "{}", status("loud"));
    let log = std::fs::read_to_string(&file).unwrap();
    assert!(log.lines().any(|line| line.contains(" warn [") && line.contains(" STATUS c5 eth0] ")), "{log}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_log_that_cannot_be_written_does_not_fail_the_call() {
    let folder = tempfile::tempdir().unwrap();
    for verb in ["ADD", "DEL"] {
        let output = cni(verb, folder.path(), r#", "logFile": "/proc/none/log""#).run();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    }
}

#[test]
fn input_beyond_the_limit_is_an_error_of_the_protocol() {
    let folder = tempfile::tempdir().unwrap();
    let mut call = cni("ADD", folder.path(), "");
    call.input.resize(plat_runtime::INPUT_BYTES_MAX + 10, b' ');
    let output = call.run();
    assert_eq!(output.status.code(), Some(1));
    let object = json(&output);
    assert_eq!(object["code"], 999);
    assert!(object["details"].as_str().unwrap().contains("smaller"), "{object}");
    let keys: Vec<&String> = object.as_object().unwrap().keys().collect();
    assert_eq!(keys.len(), 3);
    assert!(text(&output.stdout).starts_with("{\n    \"code\": 999,\n") && text(&output.stdout).ends_with('}'));
}

#[test]
fn arguments_are_for_people() {
    for argument in ["--version", "-V"] {
        let mut call = call("plat-ipam");
        call.command.arg(argument);
        let output = call.run();
        let expected = format!("allocation core: sha256 {}\n", plat_runtime::CORE_SHA256);
        assert!(
            text(&output.stdout).contains(&expected) && text(&output.stdout).contains("0.1.0, 0.2.0"),
            "{output:?}"
        );
        assert_eq!(output.status.code(), Some(0));
    }
    for argument in ["--help", "-h"] {
        let mut call = call("plat-ipam");
        call.command.arg(argument);
        let output = call.run();
        assert!(text(&output.stdout).contains("install -m 755") && output.status.success(), "{output:?}");
    }
    let mut call = call("plat-ipam");
    call.command.arg("--verbose");
    let output = call.run();
    assert!(text(&output.stderr).contains("--verbose") && output.status.code() == Some(2), "{output:?}");
}

#[test]
fn the_help_names_the_configuration_keys_that_there_are() {
    let mut call = call("plat-ipam");
    call.command.arg("--help");
    let output = call.run();
    let document = std::fs::read_to_string(documentation()).unwrap();
    let keys = text(&output.stdout).split("Configuration").nth(1).unwrap();
    let keys = keys.lines().skip(1).take_while(|line| line.starts_with("  "));
    let mut count = 0;
    for key in keys.filter_map(|line| line.split_whitespace().next()) {
        assert!(document.contains(&format!("| `{key}`")), "docs/configuration.md does not know {key}");
        count += 1;
    }
    assert!(count >= 7, "{count}");
}

fn documentation() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md")
}

#[test]
fn it_runs_under_a_limit_of_address_space() {
    let folder = tempfile::tempdir().unwrap();
    let inner = cni("ADD", folder.path(), "");
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "ulimit -v 65536 && exec \"$0\"", env!("CARGO_BIN_EXE_plat-ipam")]);
    shell.env_clear().envs(inner.command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    // The shell gives the program its own name.
    let input = text(&inner.input).replace(r#""ipam": {"#, r#""ipam": {"mode": "ranges", "#);
    let output = Call { command: shell, input: input.into_bytes() }.run();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(json(&output)["ips"][0]["address"], "10.1.0.2/29");
}

#[test]
fn phases_are_timed_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let output = cni("ADD", folder.path(), "").env("PLAT_TIMING", "1").run();
    let phases: Vec<&str> =
        text(&output.stderr).lines().filter_map(|line| line.strip_prefix("plat-timing ")?.split(' ').next()).collect();
    for phase in ["engine", "component", "instantiate", "input", "locate", "call"] {
        assert!(phases.contains(&phase), "{phase} is not in {phases:?}");
    }
}

#[test]
fn an_answer_that_cannot_be_written_is_no_success() {
    let folder = tempfile::tempdir().unwrap();
    let mut call = cni("ADD", folder.path(), "");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut child = call.command.stdin(Stdio::piped()).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&call.input).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("could not be written to standard output"), "{output:?}");
}

#[test]
fn input_that_cannot_be_read_is_code_5() {
    let folder = tempfile::tempdir().unwrap();
    let mut call = cni("ADD", folder.path(), "");
    let directory = std::fs::File::open("/").unwrap();
    let output = call.command.stdin(directory).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(json(&output)["code"], 5, "{output:?}");
    assert!(json(&output)["msg"].as_str().unwrap().starts_with("error reading from stdin: "), "{output:?}");
}

#[test]
fn a_limit_of_file_sizes_is_an_error_and_not_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = call("x").command.get_program().to_owned();
    let mut limited = Command::new("bash");
    limited.args(["-c", "ulimit -f 0; exec -a host-local \"$0\""]).arg(plugin).env_clear().env("PATH", "/usr/bin:/bin");
    let inner = cni("ADD", folder.path(), "");
    for (name, value) in inner.command.get_envs() {
        limited.env(name, value.unwrap());
    }
    let output = Call { command: limited, input: inner.input }.run();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(json(&output)["msg"].as_str().unwrap().contains("file too large"), "{output:?}");
}

#[test]
fn a_working_directory_that_is_gone_has_no_relative_paths() {
    let folder = tempfile::tempdir().unwrap();
    let gone = folder.path().join("gone");
    std::fs::create_dir(&gone).unwrap();
    let plugin = call("x").command.get_program().to_owned();
    let mut inner = cni("ADD", Path::new("rel"), "");
    let mut command = Command::new("bash");
    command.args(["-c", "rmdir \"$PWD\"; exec -a host-local \"$0\""]).arg(plugin).current_dir(&gone);
    command.env_clear().env("PATH", "/usr/bin:/bin");
    for (name, value) in inner.command.get_envs() {
        command.env(name, value.unwrap());
    }
    inner.command = command;
    let output = inner.run();
    assert_eq!(json(&output)["msg"], "mkdir rel: no such file or directory", "{output:?}");
    assert!(!Path::new("/rel").exists());
}

#[test]
fn calls_on_blocks_are_logged_to_the_file_that_calico_names() {
    use plat_core::store::{Action, Durability, Expected, Store, Write};
    use plat_stores::sqlite::{Options, SqliteStore};
    let folder = tempfile::tempdir().unwrap();
    let (store, log) = (folder.path().join("new/ipam.db"), folder.path().join("log"));
    let pool = r#"{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"p"},
        "spec":{"cidr":"10.1.0.0/30","blockSize":30,"nodeSelector":"all()"}}"#;
    let write = Write { key: "pool/p".into(), expected: Expected::Absent, action: Action::Put(pool.into()) };
    let options = Options { exclusive: true, lock_wait_max: std::time::Duration::from_secs(10), create: true };
    SqliteStore::new(&store, options).commit(&[write], &[], Durability::Process).unwrap();
    for verb in ["ADD", "DEL"] {
        let mut call = cni(verb, folder.path(), "");
        call.command.arg0("/opt/cni/bin/calico-ipam");
        call.input = format!(
            r#"{{"cniVersion": "1.0.0", "name": "net", "type": "calico", "nodename": "n1", "log_file_path": "{}",
                "log_level": "warning", "ipam": {{"type": "calico-ipam", "store": "sqlite:{}"}}}}"#,
            log.display(),
            store.display()
        )
        .into_bytes();
        let output = call.run();
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{output:?}");
    }
    let lines = std::fs::read_to_string(&log).unwrap();
    for part in ["ADD c1 eth0] assigned 10.1.0.0 of block 10.1.0.0/30 for c1/eth0 in network net", "released 10.1.0.0"]
    {
        assert!(lines.contains(part), "{part} is not in {lines}");
    }
    assert_eq!(std::fs::metadata(&store).unwrap().permissions().mode() & 0o777, 0o600);
}

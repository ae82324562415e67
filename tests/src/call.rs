//! One call of a plugin: a process with an environment of its own, standard input, and what came out.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// How long a call may take unless it says otherwise.
pub const TIMEOUT_MS_MAX: u64 = 60_000;

/// A call that is to be made. The process gets this environment and nothing of ours.
#[derive(Debug, Clone)]
pub struct Call {
    /// The file that is executed.
    pub program: PathBuf,
    /// What the process sees as its own name (argv 0); none: the path.
    pub name: Option<OsString>,
    /// The whole environment.
    pub environment: BTreeMap<OsString, OsString>,
    /// Standard input.
    pub input: Vec<u8>,
    /// The working directory.
    pub folder: PathBuf,
    /// After this time the process is killed.
    pub timeout: Duration,
}

/// What came out of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// How the process ended.
    pub end: End,
    /// Standard output.
    pub output: Vec<u8>,
    /// Standard error.
    pub errors: Vec<u8>,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// By itself, with this status.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// By us, because it took too long.
    TimedOut,
}

impl End {
    fn of(status: ExitStatus) -> Self {
        match status.code() {
            Some(code) => Self::Exit(code),
            None => Self::Signal(status.signal().unwrap_or(0)),
        }
    }
}

impl Call {
    /// A call of `program` with the verb `command` and nothing else.
    pub fn new(program: impl Into<PathBuf>, command: &str) -> Self {
        let mut call = Self {
            program: program.into(),
            name: None,
            environment: BTreeMap::new(),
            input: Vec::new(),
            folder: PathBuf::from("/"),
            timeout: Duration::from_millis(TIMEOUT_MS_MAX),
        };
        call.set("CNI_COMMAND", command);
        call
    }

    /// A call as a runtime makes it: all variables that the verb demands are there.
    pub fn of(
        program: impl Into<PathBuf>,
        command: &str,
        container: &str,
        ifname: &str,
        input: impl Into<Vec<u8>>,
    ) -> Self {
        let mut call = Self::new(program, command);
        call.set("CNI_CONTAINERID", container);
        call.set("CNI_IFNAME", ifname);
        // Need not exist: no verb of an IPAM plugin enters it.
        call.set("CNI_NETNS", "/run/netns/plat-none");
        call.set("CNI_PATH", "/usr/lib/cni");
        call.input = input.into();
        call
    }

    /// Sets a variable.
    pub fn set(&mut self, name: &str, value: &str) -> &mut Self {
        self.environment.insert(name.into(), value.into());
        self
    }

    /// Starts the process; [`Running::finish`] waits for it.
    pub fn start(&self) -> io::Result<Running> {
        let mut command = Command::new(&self.program);
        if let Some(name) = &self.name {
            command.arg0(name);
        }
        let mut child = command
            .env_clear()
            .envs(&self.environment)
            .current_dir(&self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take().expect("piped");
        feed(stdin, &self.input);
        Ok(Running { child, deadline: Instant::now() + self.timeout })
    }

    /// Makes the call.
    ///
    /// # Panics
    ///
    /// If the process cannot be started or waited for: that is no answer of the plugin.
    pub fn run(&self) -> Reply {
        self.start().and_then(Running::finish).unwrap_or_else(|e| panic!("{}: {e}", self.program.display()))
    }
}

/// What a pipe holds without a reader.
const PIPE_BYTES: usize = 65_536;

fn feed(mut stdin: std::process::ChildStdin, input: &[u8]) {
    if input.len() <= PIPE_BYTES {
        // A process that ends without reading is no fault of the caller.
        let _ = stdin.write_all(input);
    } else {
        let input = input.to_vec();
        std::thread::spawn(move || {
            let _ = stdin.write_all(&input);
        });
    }
}

/// A call under way.
#[derive(Debug)]
pub struct Running {
    child: Child,
    deadline: Instant,
}

impl Running {
    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends the process by SIGKILL, whatever it is doing.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    /// Waits for the end of the process and takes what it wrote.
    pub fn finish(mut self) -> io::Result<Reply> {
        let mut stdout = self.child.stdout.take().expect("piped");
        let mut stderr = self.child.stderr.take().expect("piped");
        for pipe in [rustix::fd::AsFd::as_fd(&stdout), rustix::fd::AsFd::as_fd(&stderr)] {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        let pid = Pid::from_child(&self.child);
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let (mut output_open, mut errors_open) = (true, true);
        let mut timed_out = false;
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let mut polled = vec![PollFd::new(&process, PollFlags::IN)];
            if output_open {
                polled.push(PollFd::new(&stdout, PollFlags::IN));
            }
            if errors_open {
                polled.push(PollFd::new(&stderr, PollFlags::IN));
            }
            let timeout = Timespec::try_from(left).map_err(io::Error::other)?;
            let ready = match poll(&mut polled, Some(&timeout)) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let ended = !polled[0].revents().is_empty();
            drop(polled);
            if ready == 0 {
                timed_out = true;
                self.child.kill()?;
            }
            output_open = output_open && drain(&mut stdout, &mut output)?;
            errors_open = errors_open && drain(&mut stderr, &mut errors)?;
            // Whoever inherited the pipes and lives on is not waited for.
            if ended || timed_out {
                break;
            }
        }
        let status = self.child.wait()?;
        Ok(Reply { end: if timed_out { End::TimedOut } else { End::of(status) }, output, errors })
    }
}

/// Reads what is there; false at the end of the file.
fn drain(pipe: &mut impl Read, into: &mut Vec<u8>) -> io::Result<bool> {
    let mut chunk = [0; 8192];
    loop {
        match pipe.read(&mut chunk) {
            Ok(0) => return Ok(false),
            Ok(n) => into.extend_from_slice(&chunk[..n]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

impl Reply {
    /// Whether the process ended with status 0.
    pub fn is_success(&self) -> bool {
        self.end == End::Exit(0)
    }

    /// Standard output as JSON, if it is one document.
    pub fn json(&self) -> Option<serde_json::Value> {
        serde_json::from_slice(&self.output).ok()
    }

    /// The `code` of an error document on standard output.
    pub fn code(&self) -> Option<u64> {
        self.json()?.get("code")?.as_u64()
    }

    /// The `msg` of an error document on standard output.
    pub fn message(&self) -> Option<String> {
        Some(self.json()?.get("msg")?.as_str()?.to_owned())
    }

    /// The addresses of a result, in any of its shapes, without prefix lengths.
    pub fn addresses(&self) -> Vec<std::net::IpAddr> {
        let Some(result) = self.json() else { return Vec::new() };
        let mut texts = Vec::new();
        for entry in result["ips"].as_array().into_iter().flatten() {
            texts.extend(entry["address"].as_str());
        }
        for key in ["ip4", "ip6"] {
            texts.extend(result[key]["ip"].as_str());
        }
        texts.into_iter().filter_map(|text| text.split('/').next()?.parse().ok()).collect()
    }
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.end {
            End::Exit(status) => writeln!(f, "exit status {status}")?,
            End::Signal(signal) => writeln!(f, "ended by signal {signal}")?,
            End::TimedOut => writeln!(f, "killed, too slow")?,
        }
        for (stream, bytes) in [("stdout", &self.output), ("stderr", &self.errors)] {
            if !bytes.is_empty() {
                writeln!(f, "{stream}: {}", String::from_utf8_lossy(bytes))?;
            }
        }
        Ok(())
    }
}

/// Runs a tool and returns its standard output; for tools that must succeed.
///
/// # Panics
///
/// If it fails, with what it said.
pub fn tool(program: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}", program.display()));
    assert!(
        output.status.success(),
        "{} {}: {}\n{}{}",
        program.display(),
        arguments.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, timeout_ms: u64) -> Reply {
        // The shell reads its script from standard input, where a plugin reads its configuration.
        let mut call = Call::new("/bin/sh", "ADD");
        call.input = script.into();
        call.timeout = Duration::from_millis(timeout_ms);
        call.run()
    }

    #[test]
    fn streams_and_status_come_apart() {
        let reply = shell("echo $CNI_COMMAND $HOME; echo oops >&2; exit 3", 10_000);
        assert_eq!(reply.end, End::Exit(3));
        assert_eq!(reply.output, b"ADD\n");
        assert_eq!(reply.errors, b"oops\n");
    }

    #[test]
    fn much_output_does_not_block() {
        let reply = shell("head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2", 10_000);
        assert_eq!((reply.output.len(), reply.errors.len()), (300_000, 300_000));
        assert_eq!(reply.end, End::Exit(0));
    }

    #[test]
    fn a_slow_process_is_ended() {
        assert_eq!(shell("sleep 10", 50).end, End::TimedOut);
    }

    #[test]
    fn a_process_that_outlives_its_parent_is_not_waited_for() {
        let start = Instant::now();
        let reply = shell("sleep 5 & echo ok", 10_000);
        assert_eq!(reply.output, b"ok\n");
        assert!(start.elapsed() < Duration::from_secs(4));
    }

    #[test]
    fn a_signal_is_not_a_status() {
        assert_eq!(shell("kill -9 $$", 10_000).end, End::Signal(9));
    }

    #[test]
    fn results_and_errors_are_read() {
        let reply = |text: &str| Reply { end: End::Exit(0), output: text.into(), errors: Vec::new() };
        assert_eq!(
            reply(r#"{"ips":[{"address":"10.0.0.2/24"},{"address":"fd00::2/64"}]}"#).addresses(),
            ["10.0.0.2", "fd00::2"].map(|a| a.parse::<std::net::IpAddr>().unwrap())
        );
        assert_eq!(
            reply(r#"{"ip4":{"ip":"10.0.0.2/24"}}"#).addresses(),
            ["10.0.0.2".parse::<std::net::IpAddr>().unwrap()]
        );
        let error = reply(r#"{"code":999,"msg":"no"}"#);
        assert_eq!((error.code(), error.message().as_deref()), (Some(999), Some("no")));
    }
}

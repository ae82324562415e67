//! One measured process.

use anyhow::{Context as _, Result, bail, ensure};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What a process is started with.
pub(super) struct Call<'a> {
    pub(super) program: &'a Path,
    pub(super) command: &'a str,
    pub(super) container: &'a str,
    pub(super) input: &'a str,
}

/// What came out of it.
pub(super) struct Done {
    /// From before the start of the process until its end was seen.
    pub(super) time: Duration,
    pub(super) output: Vec<u8>,
    pub(super) errors: Vec<u8>,
}

impl Call<'_> {
    fn prepared(&self) -> Command {
        let mut command = Command::new(self.program);
        command
            .env_clear()
            .env("CNI_COMMAND", self.command)
            .env("CNI_CONTAINERID", self.container)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_NETNS", "/run/netns/none")
            .env("CNI_PATH", "/opt/cni/bin");
        command
    }

    /// Runs it to its end and takes the time.
    ///
    /// # Errors
    /// If it does not succeed.
    pub(super) fn run(&self) -> Result<Done> {
        self.finish(&mut self.prepared(), Stdio::null())
    }

    /// Runs it with `PLAT_TIMING=1`; what it says of its phases is in the errors.
    ///
    /// # Errors
    /// If it does not succeed.
    pub(super) fn run_with_phases(&self) -> Result<Done> {
        self.finish(self.prepared().env("PLAT_TIMING", "1"), Stdio::piped())
    }

    fn finish(&self, command: &mut Command, errors: Stdio) -> Result<Done> {
        let text = format!("{} {} for {}", self.program.display(), self.command, self.container);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let start = Instant::now();
        let mut child = command.spawn().with_context(|| text.clone())?;
        let written = child.stdin.take().map(|mut stdin| stdin.write_all(self.input.as_bytes()));
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        if let Some(mut stdout) = child.stdout.take() {
            stdout.read_to_end(&mut output)?;
        }
        if let Some(mut stderr) = child.stderr.take() {
            stderr.read_to_end(&mut errors)?;
        }
        let status = child.wait()?;
        let time = start.elapsed();
        // A process that ends without reading all says so by its status.
        drop(written);
        if !status.success() {
            bail!("{text} ended with {status}: {}", String::from_utf8_lossy(&output));
        }
        Ok(Done { time, output, errors })
    }

    /// Runs it and returns its peak memory in bytes.
    ///
    /// The kernel counts what a process had before `exec` too, and a process that we start ourselves has our own memory
    /// until then. So a small shell forks it, and it is handed over to us when that shell ends; only then it goes on.
    ///
    /// # Errors
    /// If it does not succeed.
    pub(super) fn peak_memory(&self) -> Result<u64> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).context("prctl")?;
        let input = tempfile::NamedTempFile::new()?;
        std::fs::write(input.path(), self.input)?;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", r#"exec 3<&0; { read -r go <&3; exec 3<&- "$0" <"$1" >/dev/null 2>&1; } & echo $!"#])
            .arg(self.program)
            .arg(input.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        for (name, value) in self.prepared().get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        let mut shell = command.spawn().context("/bin/sh")?;
        let mut line = String::new();
        if let Some(stdout) = shell.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let pid: libc::pid_t = line.trim().parse().context("the shell's child")?;
        let go = shell.stdin.take();
        ensure!(shell.wait()?.success(), "the shell failed");
        drop(go);
        let mut status = 0;
        // SAFETY: all zeroes is a value of this plain structure.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers are to values of ours that outlive the call.
        let waited = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
        ensure!(waited == pid, "wait4: {}", std::io::Error::last_os_error());
        ensure!(status == 0, "{} {} ended with status {status}", self.program.display(), self.command);
        Ok(u64::try_from(usage.ru_maxrss)? * 1024)
    }
}

//! One call of the protocol, from the process to the core and back.

use crate::timing::Timing;
use crate::{failure, log, process};
use plat_core::cni::{Backend, Level, Line, Reply, Request, Target};
use plat_runtime::{CallError, Core, INPUT_BYTES_MAX, Instance};
use plat_stores::clock::SystemClock;
use plat_stores::directory::{DirectoryStore, Options};
use plat_stores::files::{NoStore, WithHostFiles};
use plat_stores::sqlite::{self, SqliteStore};
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long one call may take: less than the four minutes after which a kubelet gives up the sandbox, so that the answer
/// still reaches somebody.
const DEADLINE: Duration = Duration::from_secs(235);

/// The longest pause before a contended call is repeated. Pauses double from one millisecond on.
const PAUSE_MAX: Duration = Duration::from_millis(256);

/// Answers the call that the environment describes.
pub(crate) fn serve(mut timing: Timing) -> ExitCode {
    let started = Instant::now();
    let code = match run(started, &mut timing) {
        Ok(reply) => {
            // If standard error is closed, nobody is there to be told.
            let _ = std::io::stderr().write_all(&reply.error_output);
            match write_whole(&reply.output) {
                Ok(()) => ExitCode::from(reply.exit_status),
                Err(error) => {
                    log::to_stderr(&[Line {
                        level: Level::Error,
                        text: format!("the answer could not be written to standard output: {error}"),
                    }]);
                    ExitCode::FAILURE
                }
            }
        }
        Err(Failure { code, message, details }) => failure::answer(code, &message, &details),
    };
    timing.mark("answer");
    timing.print();
    code
}

/// Writes all of an answer; a caller that cannot have it must not take the call for a success.
fn write_whole(answer: &[u8]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(answer)?;
    out.flush()
}

/// A call that the core could not answer.
struct Failure {
    code: u32,
    message: String,
    details: String,
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        if matches!(error, CallError::RequestsTooLarge { .. }) {
            return Self {
                code: failure::CODE_INTERNAL,
                message: format!("the network configuration on standard input is longer than {INPUT_BYTES_MAX} bytes"),
                details: "make it smaller".to_owned(),
            };
        }
        let details = format!(
            "plat-ipam {} with core {} could not answer. What it had reserved for this call is given back by DEL or \
                 GC. This is a fault: please report it with the configuration and the environment",
            env!("CARGO_PKG_VERSION"),
            plat_runtime::CORE_SHA256
        );
        Self { code: failure::CODE_INTERNAL, message: error.to_string(), details }
    }
}

fn run(started: Instant, timing: &mut Timing) -> Result<Reply, Failure> {
    let mut request = process::request(milliseconds_left(started));
    timing.mark("request");
    let core = Core::embedded_observed(&mut |phase| timing.mark(phase))?;
    let mut instance = core.instance();
    instance.start()?;
    timing.mark("instantiate");
    let mut target = locate(&mut instance, &request)?;
    if target.reads_input {
        request.input = process::input().map_err(|error| Failure {
            code: failure::CODE_IO_FAILURE,
            message: format!("error reading from stdin: {error}"),
            details: "a CNI plugin is given its configuration on standard input".to_owned(),
        })?;
        timing.mark("input");
        target = locate(&mut instance, &request)?;
    }
    if target.compares_netns {
        request.surroundings.netns_is_own = process::netns_is_own(&request);
    }
    timing.mark("locate");
    let (reply, notices) = call(&mut instance, &mut request, &target, started)?;
    timing.mark("call");
    let mut lines = notices;
    lines.extend_from_slice(&reply.log);
    log::to_stderr(&lines);
    if let Some(file) = &target.log {
        log::to_file(file, &described(&request), &lines);
    }
    timing.mark("log");
    Ok(reply)
}

fn locate(instance: &mut Instance<'_>, request: &Request) -> Result<Target, Failure> {
    let targets = instance.locate(std::slice::from_ref(request))?;
    targets.into_iter().next().ok_or_else(|| CallError::WrongCount { requests: 1, answers: 0 }.into())
}

/// Calls the core until it decides or the time is up.
fn call(
    instance: &mut Instance<'_>,
    request: &mut Request,
    target: &Target,
    started: Instant,
) -> Result<(Reply, Vec<Line>), Failure> {
    let mut notices = Vec::new();
    loop {
        request.deadline_ms = milliseconds_left(started);
        let reply = call_once(instance, request, target, &mut notices)?;
        let pause = pause(request.attempt);
        if !reply.contended || started.elapsed() + pause >= DEADLINE {
            return Ok((reply, notices));
        }
        std::thread::sleep(pause);
        request.attempt += 1;
    }
}

/// Calls the core with the store that the request is for. A lock that the store takes is held until the end of this.
fn call_once(
    instance: &mut Instance<'_>,
    request: &Request,
    target: &Target,
    notices: &mut Vec<Line>,
) -> Result<Reply, Failure> {
    let requests = std::slice::from_ref(request);
    let mut clock = SystemClock;
    let replies = match &target.backend {
        Backend::None => instance.call(requests, &mut WithHostFiles::new(NoStore), &mut clock)?,
        Backend::Directory(data_dir) => {
            let mut options = Options::system();
            options.lock_wait_max = Duration::from_millis(target.lock_wait_ms_max.min(request.deadline_ms));
            let directory = DirectoryStore::new(data_dir.into(), target.network.clone(), options);
            let mut store = WithHostFiles::new(directory);
            let replies = instance.call(requests, &mut store, &mut clock);
            notices.extend(store.store_mut().take_notices());
            replies?
        }
        Backend::Sqlite(path) => {
            let wait_ms_max = target.lock_wait_ms_max.min(request.deadline_ms);
            let lock_wait_max = Duration::from_millis(wait_ms_max);
            let options = sqlite::Options { exclusive: target.exclusive, lock_wait_max, create: true };
            let mut store = WithHostFiles::new(SqliteStore::new(path, options));
            instance.call(requests, &mut store, &mut clock)?
        }
        Backend::Etcd(_) | Backend::Kubernetes | Backend::Daemon(_) => {
            return Err(Failure {
                code: failure::CODE_INTERNAL,
                message: format!("this plat-ipam has no store of the kind {}", kind(&target.backend)),
                details: format!("the stores of this build are: {}", crate::about::STORES.join(", ")),
            });
        }
    };
    replies.into_iter().next().ok_or_else(|| CallError::WrongCount { requests: 1, answers: 0 }.into())
}

fn kind(backend: &Backend) -> &'static str {
    match backend {
        Backend::None => "none",
        Backend::Directory(_) => "directory",
        Backend::Sqlite(_) => "sqlite",
        Backend::Etcd(_) => "etcd",
        Backend::Kubernetes => "kubernetes",
        Backend::Daemon(_) => "daemon",
    }
}

fn milliseconds_left(started: Instant) -> u64 {
    DEADLINE.saturating_sub(started.elapsed()).as_millis().try_into().unwrap_or(u64::MAX)
}

/// How long to wait before the next attempt: doubling, and anywhere between half of it and all of it, so that those who
/// collided do not collide again.
fn pause(attempt: u32) -> Duration {
    let longest = Duration::from_millis(1).saturating_mul(1 << attempt.min(8)).min(PAUSE_MAX);
    let random = RandomState::new().hash_one(attempt);
    longest / 2 + (longest / 2).mul_f64((random as f64) / (u64::MAX as f64))
}

/// A call in a few words, for the log.
fn described(request: &Request) -> String {
    let value = |name: &[u8]| {
        let found = request.environment.iter().find(|(variable, _)| variable == name);
        found.map_or("-".into(), |(_, value)| String::from_utf8_lossy(value).escape_debug().to_string())
    };
    [value(b"CNI_COMMAND"), value(b"CNI_CONTAINERID"), value(b"CNI_IFNAME")].join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_with_jitter_up_to_their_limit() {
        for attempt in 0..40 {
            let longest = Duration::from_millis(1 << attempt.min(8));
            for _ in 0..100 {
                let pause = pause(attempt);
                assert!(pause >= longest / 2 && pause <= longest, "{attempt}: {pause:?}");
            }
        }
        let pauses: std::collections::BTreeSet<Duration> = (0..100).map(|_| pause(8)).collect();
        assert!(pauses.len() > 90, "no jitter");
    }
}

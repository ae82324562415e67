//! What the core is told of this process.

use plat_core::cni::{Request, Surroundings};
use plat_runtime::INPUT_BYTES_MAX;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

/// The name of this program where the system does not tell.
const OWN_NAME: &str = "plat-ipam";

/// How a variable of the protocol begins.
const PREFIX: &[u8] = b"CNI_";

/// The variable with the path of the container's network namespace.
const NETNS: &[u8] = b"CNI_NETNS";

/// The request without its input, and without what only some calls need.
pub(crate) fn request(deadline_ms: u64) -> Request {
    let environment = std::env::vars_os()
        .filter(|(name, _)| name.as_bytes().starts_with(PREFIX))
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .collect();
    Request {
        program: program(),
        environment,
        surroundings: Surroundings {
            host_name: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            working_directory: working_directory(),
            netns_is_own: None,
        },
        deadline_ms,
        ..Request::default()
    }
}

/// The file name that this program was started under.
fn program() -> String {
    let started_as = std::env::args_os().next().unwrap_or_default();
    let name = std::path::Path::new(&started_as).file_name();
    name.map_or_else(|| OWN_NAME.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Empty where it has no path, since it was removed under this process, or none in UTF-8.
fn working_directory() -> String {
    std::env::current_dir().ok().and_then(|path| path.into_os_string().into_string().ok()).unwrap_or_default()
}

/// Standard input, whole; one byte more than the core takes if it is longer, so that the core's limit refuses it.
pub(crate) fn input() -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().take(INPUT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether CNI_NETNS is the network namespace of this process; none if it is not set or cannot be looked at.
pub(crate) fn netns_is_own(request: &Request) -> Option<bool> {
    let (_, path) = request.environment.iter().find(|(name, _)| name == NETNS)?;
    let theirs = std::fs::metadata(std::ffi::OsStr::from_bytes(path)).ok()?;
    let own = std::fs::metadata("/proc/self/ns/net").ok()?;
    Some((theirs.dev(), theirs.ino()) == (own.dev(), own.ino()))
}

/// Has a file that may not grow (RLIMIT_FSIZE) be an error of the write, which is answered, and not the end of the process.
pub(crate) fn ignore_file_size_signal() {
    // SAFETY: it installs no handler, and no other thread runs yet.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

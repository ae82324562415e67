//! What went wrong with a file, in the words that a Go program uses: operation, path, reason.
//!
//! Tools and people match on these texts, so a replacement of a Go program keeps them.

use plat_core::store::Error;
use rustix::io::Errno;

/// A failed operation on a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What was tried: `open`, `mkdir`, `read`.
    pub operation: &'static str,
    /// On what.
    pub path: String,
    /// Why it failed.
    pub errno: Errno,
}

impl Trouble {
    /// A failed `operation` on `path`.
    pub fn new(operation: &'static str, path: impl Into<String>, errno: Errno) -> Self {
        Self { operation, path: path.into(), errno }
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.operation, self.path, reason(self.errno))
    }
}

impl std::error::Error for Trouble {}

impl From<Trouble> for Error {
    /// Lack of space and of working hardware may pass; rights and the shape of a path stay as they are.
    fn from(trouble: Trouble) -> Self {
        match trouble.errno {
            Errno::NOSPC
            | Errno::DQUOT
            | Errno::IO
            | Errno::NOMEM
            | Errno::MFILE
            | Errno::NFILE
            | Errno::AGAIN
            | Errno::INTR
            | Errno::STALE
            | Errno::NOLCK
            | Errno::BUSY
            | Errno::TIMEDOUT => Self::Unavailable(trouble.to_string()),
            // A file that went away under us; a folder that cannot be made will not be there next time either.
            Errno::NOENT if trouble.operation != "mkdir" => Self::Unavailable(trouble.to_string()),
            _ => Self::Denied(trouble.to_string()),
        }
    }
}

/// The reason as Go's `syscall.Errno` words it on Linux.
pub fn reason(errno: Errno) -> String {
    let text = match errno {
        Errno::PERM => "operation not permitted",
        Errno::NOENT => "no such file or directory",
        Errno::INTR => "interrupted system call",
        Errno::IO => "input/output error",
        Errno::NXIO => "no such device or address",
        Errno::BADF => "bad file descriptor",
        Errno::AGAIN => "resource temporarily unavailable",
        Errno::NOMEM => "cannot allocate memory",
        Errno::ACCESS => "permission denied",
        Errno::BUSY => "device or resource busy",
        Errno::EXIST => "file exists",
        Errno::XDEV => "invalid cross-device link",
        Errno::NODEV => "no such device",
        Errno::NOTDIR => "not a directory",
        Errno::ISDIR => "is a directory",
        Errno::INVAL => "invalid argument",
        Errno::NFILE => "too many open files in system",
        Errno::MFILE => "too many open files",
        Errno::TXTBSY => "text file busy",
        Errno::FBIG => "file too large",
        Errno::NOSPC => "no space left on device",
        Errno::ROFS => "read-only file system",
        Errno::MLINK => "too many links",
        Errno::NAMETOOLONG => "file name too long",
        Errno::NOLCK => "no locks available",
        Errno::NOSYS => "function not implemented",
        Errno::NOTEMPTY => "directory not empty",
        Errno::LOOP => "too many levels of symbolic links",
        Errno::OPNOTSUPP => "operation not supported",
        Errno::TIMEDOUT => "connection timed out",
        Errno::STALE => "stale NFS file handle",
        Errno::DQUOT => "disk quota exceeded",
        other => return format!("errno {}", other.raw_os_error()),
    };
    text.to_owned()
}

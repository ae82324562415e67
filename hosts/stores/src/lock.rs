//! The lock of a local store: a BSD flock (on host-local's file `lock` in a directory), waited for with a deadline and
//! without polling.

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::sync::mpsc;
use std::time::Duration;

/// Why the lock was not got.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The deadline passed.
    TimedOut,
    /// The call failed.
    Failed(Errno),
}

/// Takes the lock, or gives up after `wait_max`. Closing the descriptor releases it.
///
/// A poller would starve beside the blocking waiters that host-local's processes are, so a thread blocks in flock and
/// the caller waits for the thread. When the deadline passes first, the thread stays blocked; the lock that it gets
/// in the end goes into a channel without a receiver, and so is closed at once.
pub(crate) fn take(file: OwnedFd, wait_max: Duration) -> Result<OwnedFd, Refused> {
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => return Ok(file),
        Err(Errno::WOULDBLOCK) => {}
        Err(Errno::INTR) => {}
        Err(errno) => return Err(Refused::Failed(errno)),
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    let blocked = std::thread::Builder::new().name("plat-lock".to_owned()).spawn(move || {
        let taken = loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Ok(()) => break Ok(file),
                Err(Errno::INTR) => {}
                Err(errno) => break Err(errno),
            }
        };
        // Nobody waits any more: dropping what comes back closes the file and gives the lock back.
        drop(sender.send(taken));
    });
    if let Err(error) = blocked {
        return Err(Refused::Failed(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN)));
    }
    match receiver.recv_timeout(wait_max) {
        Ok(Ok(file)) => Ok(file),
        Ok(Err(errno)) => Err(Refused::Failed(errno)),
        Err(mpsc::RecvTimeoutError::Timeout) => Err(Refused::TimedOut),
        Err(mpsc::RecvTimeoutError::Disconnected) => Err(Refused::Failed(Errno::AGAIN)),
    }
}

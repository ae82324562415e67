//! plat-ipam, the CNI plugin: a shell around the allocation core.
//!
//! It moves bytes, waits, keeps the deadline and opens the store that the core names. What a call means, and what is
//! answered, the core decides; this program answers by itself only if the core could not be run.

mod about;
mod failure;
mod log;
mod process;
mod serve;
mod timing;

use std::process::ExitCode;

fn main() -> ExitCode {
    let timing = timing::Timing::start();
    failure::answer_panics();
    process::ignore_file_size_signal();
    let mut arguments = std::env::args_os().skip(1);
    // A runtime never passes arguments; a person may.
    match arguments.next() {
        Some(argument) => about::answer(&argument),
        None => serve::serve(timing),
    }
}

//! The values of the `cni` interface, from plat-core's types and to them.

use crate::bindings::exports::plat::ipam::{cni as wit, types};
use plat_core::cni;
use plat_core::net::{Address, Family};

pub(crate) fn request(request: &cni::Request) -> wit::Request {
    wit::Request {
        program: request.program.clone(),
        environment: request
            .environment
            .iter()
            .map(|(name, value)| wit::Variable { name: name.clone(), value: value.clone() })
            .collect(),
        input: request.input.clone(),
        surroundings: wit::Surroundings {
            host_name: request.surroundings.host_name.clone(),
            working_directory: request.surroundings.working_directory.clone(),
            netns_is_own: request.surroundings.netns_is_own,
        },
        deadline_ms: request.deadline_ms,
        attempt: request.attempt,
        advice: request.advice.iter().map(advice).collect(),
    }
}

/// About how many bytes a request takes.
pub(crate) fn request_bytes(request: &cni::Request) -> usize {
    let advice = |advice: &cni::Advice| {
        advice.policy.len()
            + advice.refuse.as_ref().map_or(0, String::len)
            + advice.pools.iter().flatten().map(String::len).sum::<usize>()
            + advice.blocks.as_ref().map_or(0, |blocks| size_of_val(blocks.as_slice()))
    };
    request.program.len()
        + request.environment.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
        + request.input.len()
        + request.surroundings.host_name.len()
        + request.surroundings.working_directory.len()
        + request.advice.iter().map(advice).sum::<usize>()
}

fn advice(advice: &cni::Advice) -> types::Advice {
    types::Advice {
        policy: advice.policy.clone(),
        refuse: advice.refuse.clone(),
        pools: advice.pools.clone(),
        blocks: advice
            .blocks
            .as_ref()
            .map(|blocks| blocks.iter().map(|(base, length)| prefix(*base, *length)).collect()),
    }
}

fn prefix(base: Address, length: u8) -> types::Prefix {
    let family = match base.family() {
        Family::V4 => types::Family::V4,
        Family::V6 => types::Family::V6,
    };
    let [hi, lo] = [base.bits() >> 64, base.bits() & u128::from(u64::MAX)].map(|half| half as u64);
    types::Prefix { base: types::Address { family, hi, lo }, length }
}

pub(crate) fn target(target: wit::Target) -> cni::Target {
    cni::Target {
        backend: match target.backend {
            wit::Backend::None => cni::Backend::None,
            wit::Backend::Directory(path) => cni::Backend::Directory(path),
            wit::Backend::Sqlite(path) => cni::Backend::Sqlite(path),
            wit::Backend::Etcd(endpoints) => cni::Backend::Etcd(endpoints),
            wit::Backend::Kubernetes => cni::Backend::Kubernetes,
            wit::Backend::Daemon(socket) => cni::Backend::Daemon(socket),
        },
        network: target.network,
        exclusive: target.exclusive,
        lock_wait_ms_max: target.lock_wait_ms_max,
        log: target.log.map(|log| cni::LogFile { path: log.path, bytes_max: log.bytes_max }),
        reads_input: target.reads_input,
        compares_netns: target.compares_netns,
    }
}

pub(crate) fn reply(reply: wit::Reply) -> cni::Reply {
    cni::Reply {
        exit_status: reply.exit_status,
        output: reply.output,
        error_output: reply.error_output,
        log: reply.log.into_iter().map(line).collect(),
        contended: reply.contended,
    }
}

fn line(line: wit::Line) -> cni::Line {
    cni::Line {
        level: match line.level {
            wit::Level::Error => cni::Level::Error,
            wit::Level::Warning => cni::Level::Warning,
            wit::Level::Info => cni::Level::Info,
            wit::Level::Debug => cni::Level::Debug,
        },
        text: line.text,
    }
}

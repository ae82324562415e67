//! The values of the `cni` interface, to plat-core and back.

use crate::bindings::exports::plat::ipam::{cni as wit, types};
use plat_core::cni;
use plat_core::net::{Address, Family};

pub(crate) fn request(request: wit::Request) -> cni::Request {
    cni::Request {
        program: request.program,
        environment: request.environment.into_iter().map(|variable| (variable.name, variable.value)).collect(),
        input: request.input,
        surroundings: cni::Surroundings {
            host_name: request.surroundings.host_name,
            working_directory: request.surroundings.working_directory,
            netns_is_own: request.surroundings.netns_is_own,
        },
        deadline_ms: request.deadline_ms,
        attempt: request.attempt,
        advice: request.advice.into_iter().map(advice).collect(),
    }
}

fn advice(advice: types::Advice) -> cni::Advice {
    cni::Advice {
        policy: advice.policy,
        refuse: advice.refuse,
        pools: advice.pools,
        // A block whose bits are wider than its family cannot exist, and advice on what does not exist is skipped.
        blocks: advice.blocks.map(|blocks| blocks.into_iter().filter_map(prefix).collect()),
    }
}

fn prefix(prefix: types::Prefix) -> Option<(Address, u8)> {
    let family = match prefix.base.family {
        types::Family::V4 => Family::V4,
        types::Family::V6 => Family::V6,
    };
    let bits = u128::from(prefix.base.hi) << 64 | u128::from(prefix.base.lo);
    Some((Address::new(family, bits)?, prefix.length))
}

pub(crate) fn target(target: cni::Target) -> wit::Target {
    wit::Target {
        backend: match target.backend {
            cni::Backend::None => wit::Backend::None,
            cni::Backend::Directory(path) => wit::Backend::Directory(path),
            cni::Backend::Sqlite(path) => wit::Backend::Sqlite(path),
            cni::Backend::Etcd(endpoints) => wit::Backend::Etcd(endpoints),
            cni::Backend::Kubernetes => wit::Backend::Kubernetes,
            cni::Backend::Daemon(socket) => wit::Backend::Daemon(socket),
        },
        network: target.network,
        exclusive: target.exclusive,
        lock_wait_ms_max: target.lock_wait_ms_max,
        log: target.log.map(|log| wit::LogFile { path: log.path, bytes_max: log.bytes_max }),
        reads_input: target.reads_input,
        compares_netns: target.compares_netns,
    }
}

pub(crate) fn reply(reply: cni::Reply) -> wit::Reply {
    wit::Reply {
        exit_status: reply.exit_status,
        output: reply.output,
        error_output: reply.error_output,
        log: reply.log.into_iter().map(line).collect(),
        contended: reply.contended,
    }
}

fn line(line: cni::Line) -> wit::Line {
    wit::Line {
        level: match line.level {
            cni::Level::Error => wit::Level::Error,
            cni::Level::Warning => wit::Level::Warning,
            cni::Level::Info => wit::Level::Info,
            cni::Level::Debug => wit::Level::Debug,
        },
        text: line.text,
    }
}

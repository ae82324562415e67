//! What a dataDir holds, for people who look: read without the lock and without the index, and nothing is written.
//!
//! A file that comes or goes meanwhile may be missing or shown. For anything that acts on what it reads there is
//! [`super::DirectoryStore`].

use super::files::{Name, Seen, look, record};
use super::held::NOT_A_FILE;
use super::open_folder;
use crate::trouble::{Trouble, reason};
use plat_core::net::Address;
use plat_core::network::{Record, is_container_id};
use rustix::fs::{Dir, FileType};
use std::path::Path;

/// The networks of a dataDir, in the order of their names: the folders that host-local can have made.
///
/// # Errors
/// If the dataDir cannot be read.
pub fn networks(data_dir: &Path) -> Result<Vec<String>, Trouble> {
    let shown = data_dir.to_string_lossy();
    let failed = |errno| Trouble::new("open", shown.clone(), errno);
    let folder = open_folder(data_dir).map_err(failed)?;
    let mut found = Vec::new();
    for entry in Dir::read_from(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        // An administrator may have put a link to a folder elsewhere; whatever is no folder is no network.
        let may_be_folder = matches!(entry.file_type(), FileType::Directory | FileType::Symlink | FileType::Unknown);
        if may_be_folder && is_container_id(name) && data_dir.join(name).is_dir() {
            found.push(name.to_owned());
        }
    }
    found.sort();
    Ok(found)
}

/// The addresses that a network holds, in their order. A file that names no owner is held by nobody, with the reason in
/// [`Record::foreign`].
///
/// # Errors
/// If the network's directory cannot be read.
pub fn held(data_dir: &Path, network: &str) -> Result<Vec<(Address, Record)>, Trouble> {
    let path = data_dir.join(network);
    let shown = path.to_string_lossy();
    let failed = |errno| Trouble::new("open", shown.clone(), errno);
    let folder = open_folder(&path).map_err(failed)?;
    let mut addresses = Vec::new();
    for entry in Dir::read_from(&folder).map_err(failed)? {
        if let Ok(name) = entry.map_err(failed)?.file_name().to_str()
            && let Name::Address(address) = Name::of(name)
        {
            addresses.push(address);
        }
    }
    addresses.sort_unstable();
    let read = |address: Address| {
        let record = match look(&folder, &address.to_string()) {
            Seen::Absent => return None,
            Seen::File(_, content) => record(&content),
            Seen::NotAFile => Record::foreign(NOT_A_FILE, None),
            Seen::Unreadable(errno) => Record::foreign(format!("unreadable: {}", reason(errno)), None),
        };
        Some((address, record))
    };
    Ok(addresses.into_iter().filter_map(read).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_seen_and_nothing_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let network = folder.path().join("net");
        std::fs::create_dir_all(folder.path().join(".plat/net")).unwrap();
        std::fs::create_dir_all(network.join("10.0.0.9")).unwrap();
        for (name, content) in [
            ("10.0.0.10", "c1\r\neth0"),
            ("10.0.0.2", "c2"),
            ("10.0.0.3", ""),
            ("fd00::1", "c1\r\neth0"),
            ("lock", ""),
            ("last_reserved_ip.0", "10.0.0.10"),
            ("note", "c1\r\neth0"),
        ] {
            std::fs::write(network.join(name), content).unwrap();
        }
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert_eq!(networks(folder.path()).unwrap(), ["net"]);
        let held = held(folder.path(), "net").unwrap();
        let shown: Vec<(String, Option<&str>, Option<&str>)> = held
            .iter()
            .map(|(address, record)| (address.to_string(), record.container.as_deref(), record.foreign.as_deref()))
            .collect();
        assert_eq!(
            shown,
            [
                ("10.0.0.2".to_owned(), Some("c2"), None),
                ("10.0.0.3".to_owned(), None, Some("empty")),
                ("10.0.0.9".to_owned(), None, Some(NOT_A_FILE)),
                ("10.0.0.10".to_owned(), Some("c1"), None),
                ("fd00::1".to_owned(), Some("c1"), None),
            ]
        );
        assert_eq!(std::fs::read_dir(folder.path().join(".plat/net")).unwrap().count(), 0);
        let missing = super::held(folder.path(), "other").unwrap_err();
        assert!(missing.to_string().ends_with("other: no such file or directory"), "{missing}");
        assert!(networks(&folder.path().join("none")).is_err());
    }
}

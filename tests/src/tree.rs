//! What a store directory looks like: a sorted list of what is in it, to compare and to print.

use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The folder of our own index beside the networks' directories; the original never sees it, and snapshots leave it out.
pub const INDEX: &str = ".plat";

/// What one name stands for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A regular file and its content.
    File(Vec<u8>),
    /// A directory.
    Directory,
    /// A symbolic link and its target.
    Link(Vec<u8>),
    /// A socket, a pipe or a device.
    Other,
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Path relative to the root of the snapshot.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// What it is.
    pub kind: Kind,
}

/// A directory's entries at all depths, sorted by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree(pub Vec<Entry>);

/// Takes a snapshot of `root`, without any [`INDEX`] and what is in it. A root that does not exist is empty.
pub fn snapshot(root: &Path) -> io::Result<Tree> {
    let mut entries = Vec::new();
    walk(root, "", &mut entries)?;
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(Tree(entries))
}

fn walk(folder: &Path, prefix: &str, entries: &mut Vec<Entry>) -> io::Result<()> {
    let listing = match folder.read_dir() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for item in listing {
        let item = item?;
        let name = item.file_name().to_string_lossy().into_owned();
        if name == INDEX {
            continue;
        }
        let path = format!("{prefix}{name}");
        let metadata = item.path().symlink_metadata()?;
        let kind = if metadata.is_dir() {
            walk(&item.path(), &format!("{path}/"), entries)?;
            Kind::Directory
        } else if metadata.is_symlink() {
            Kind::Link(std::fs::read_link(item.path())?.into_os_string().into_encoded_bytes())
        } else if metadata.is_file() {
            Kind::File(std::fs::read(item.path())?)
        } else {
            Kind::Other
        };
        entries.push(Entry { path, mode: metadata.permissions().mode() & 0o7777, kind });
    }
    Ok(())
}

impl Tree {
    /// The entry of that path.
    pub fn get(&self, path: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.path == path)
    }

    /// The files that are named like addresses, with their contents, directly in the folder `network` ("" = the root).
    pub fn addresses<'a>(&'a self, network: &str) -> Vec<(std::net::IpAddr, &'a [u8])> {
        let prefix = if network.is_empty() { String::new() } else { format!("{network}/") };
        self.0
            .iter()
            .filter_map(|entry| match &entry.kind {
                Kind::File(content) => {
                    let name = entry.path.strip_prefix(&prefix)?;
                    Some((name.parse().ok()?, content.as_slice()))
                }
                _ => None,
            })
            .collect()
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o} {}", self.mode, self.path)?;
        match &self.kind {
            Kind::File(content) => write!(f, " \"{}\"", content.escape_ascii()),
            Kind::Directory => write!(f, "/"),
            Kind::Link(target) => write!(f, " -> {}", target.escape_ascii()),
            Kind::Other => write!(f, " (special)"),
        }
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for entry in &self.0 {
            writeln!(f, "{entry}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_sorted_and_without_the_index() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        std::fs::create_dir_all(root.join("net/sub")).unwrap();
        std::fs::create_dir_all(root.join(".plat/net")).unwrap();
        std::fs::write(root.join("net/10.0.0.2"), "c1\r\neth0").unwrap();
        std::fs::write(root.join("net/lock"), "").unwrap();
        std::fs::write(root.join(".plat/net/index"), "x").unwrap();
        std::fs::set_permissions(root.join("net/10.0.0.2"), PermissionsExt::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("lock", root.join("net/link")).unwrap();
        let tree = snapshot(root).unwrap();
        let paths: Vec<_> = tree.0.iter().map(|entry| entry.path.as_str()).collect();
        assert_eq!(paths, ["net", "net/10.0.0.2", "net/link", "net/lock", "net/sub"]);
        assert_eq!(tree.get("net/10.0.0.2").unwrap().to_string(), r#"0600 net/10.0.0.2 "c1\r\neth0""#);
        assert_eq!(tree.get("net/link").unwrap().kind, Kind::Link(b"lock".to_vec()));
        assert_eq!(tree.addresses("net"), [("10.0.0.2".parse().unwrap(), b"c1\r\neth0".as_slice())]);
    }

    #[test]
    fn a_root_that_is_not_there_is_empty() {
        assert_eq!(snapshot(Path::new("/nonexistent/plat")).unwrap(), Tree::default());
    }
}

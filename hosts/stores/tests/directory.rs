//! The directory store on the common path.

use plat_core::net::Address;
use plat_core::network::{Keys, Place, Record};
use plat_core::store::{Action, Durability, Error, Expected, Store, Write};
use plat_stores::directory::{DirectoryStore, Options};

fn address(text: &str) -> Place {
    Place::Address(Address::parse(text).unwrap())
}

#[test]
fn an_address_is_granted_found_and_released() {
    let folder = tempfile::tempdir().unwrap();
    let keys = Keys::new("net");
    let open = || DirectoryStore::new(folder.path().to_owned(), "net".into(), Options::system());
    let mut store = open();
    let record = Record::owned("c1", "eth0", Options::system().boot_id);
    let batch = [
        Write {
            key: keys.key(&address("10.1.2.2")),
            expected: Expected::Absent,
            action: Action::Put(record.to_bytes()),
        },
        Write {
            key: keys.key(&Place::Cursor(0)),
            expected: Expected::Absent,
            action: Action::Put(b"10.1.2.2".to_vec()),
        },
    ];
    store.commit(&batch, &[], Durability::Process).unwrap();
    drop(store);
    assert_eq!(std::fs::read(folder.path().join("net/10.1.2.2")).unwrap(), b"c1\r\neth0");
    assert_eq!(std::fs::read(folder.path().join("net/last_reserved_ip.0")).unwrap(), b"10.1.2.2");

    let mut store = open();
    assert!(matches!(store.commit(&batch, &[], Durability::Process), Err(Error::Conflict(keys)) if keys.len() == 2));
    assert_eq!(store.take_notices(), []);
    let owner = keys.key(&Place::Owner { container: "c1".into(), ifname: "eth0".into() });
    let found = store.read(&[owner, keys.key(&address("10.1.2.2"))], true).unwrap();
    assert_eq!(found[0].as_ref().unwrap().value, br#"["address/v4/0a010202"]"#);
    let entry = found[1].clone().unwrap();
    assert_eq!(entry.value, record.to_bytes());
    let delete = Write { key: entry.key, expected: Expected::At(entry.version), action: Action::Delete };
    store.commit(&[delete], &[], Durability::Process).unwrap();
    assert!(!folder.path().join("net/10.1.2.2").exists());
    assert_eq!(store.count(keys.prefix(), None, None, true).unwrap(), 1);
}

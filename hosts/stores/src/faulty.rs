//! A store that goes wrong on order: an adapter around any other, for tests of everything above.

use plat_core::store::{Durability, Entry, Error, Event, Page, Store, Version, Write};
use std::time::Duration;

/// What goes wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call is not made; this is the answer.
    Fail(Error),
    /// The call is made after this time.
    Delay(Duration),
    /// The call is made; the answer is [`Error::UnknownOutcome`] for a commit, [`Error::Unavailable`] for the rest.
    LoseReply,
    /// The caller dies before the call is made.
    CrashBefore(Crash),
    /// The caller dies after the call was made.
    CrashAfter(Crash),
}

/// How a caller dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// A panic with a [`Crashed`] as its payload.
    Panic,
    /// The process exits with this status, without unwinding.
    Exit(i32),
}

/// The payload of a panic that was ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crashed {
    /// The number of the call, from 1.
    pub call: u64,
}

/// Which calls are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Every call but [`Store::atomic_writes`].
    All,
    /// Commits alone.
    Commits,
}

/// Passes calls to a store, and lets chosen ones go wrong.
#[derive(Clone, Debug)]
pub struct FaultyStore<S> {
    store: S,
    counted: Counted,
    calls: u64,
    /// By the number of the call, from 1.
    plan: Vec<(u64, Fault)>,
}

impl<S: Store> FaultyStore<S> {
    /// Around `store`, with no faults.
    pub fn new(store: S) -> Self {
        Self { store, counted: Counted::All, calls: 0, plan: Vec::new() }
    }

    /// The `call`-th counted call from the start of this adapter, from 1, goes wrong.
    pub fn with(mut self, call: u64, fault: Fault) -> Self {
        self.plan.push((call, fault));
        self
    }

    /// Counts only some calls.
    pub fn counting(mut self, counted: Counted) -> Self {
        self.counted = counted;
        self
    }

    /// How many counted calls were made.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// The store behind.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// The store behind.
    pub fn into_inner(self) -> S {
        self.store
    }

    fn call<T>(&mut self, commits: bool, make: impl FnOnce(&mut S) -> Result<T, Error>) -> Result<T, Error> {
        if self.counted == Counted::Commits && !commits {
            return make(&mut self.store);
        }
        self.calls += 1;
        let call = self.calls;
        let fault = self.plan.iter().find(|(at, _)| *at == call).map(|(_, fault)| fault.clone());
        match fault {
            None => make(&mut self.store),
            Some(Fault::Fail(error)) => Err(error),
            Some(Fault::Delay(time)) => {
                std::thread::sleep(time);
                make(&mut self.store)
            }
            Some(Fault::LoseReply) => {
                // The reply is lost whatever it was.
                let _ = make(&mut self.store);
                Err(if commits {
                    Error::UnknownOutcome
                } else {
                    Error::Unavailable(format!("the reply to call {call} was lost"))
                })
            }
            Some(Fault::CrashBefore(crash)) => die(crash, call),
            Some(Fault::CrashAfter(crash)) => {
                let _ = make(&mut self.store);
                die(crash, call)
            }
        }
    }
}

fn die(crash: Crash, call: u64) -> ! {
    match crash {
        Crash::Panic => std::panic::panic_any(Crashed { call }),
        Crash::Exit(status) => std::process::exit(status),
    }
}

impl<S: Store> Store for FaultyStore<S> {
    fn read(&mut self, keys: &[String], fresh: bool) -> Result<Vec<Option<Entry>>, Error> {
        self.call(false, |store| store.read(keys, fresh))
    }

    fn scan(
        &mut self,
        prefix: &str,
        from: Option<&str>,
        limit: u32,
        keys_only: bool,
        fresh: bool,
    ) -> Result<Page, Error> {
        self.call(false, |store| store.scan(prefix, from, limit, keys_only, fresh))
    }

    fn count(&mut self, prefix: &str, from: Option<&str>, until: Option<&str>, fresh: bool) -> Result<u64, Error> {
        self.call(false, |store| store.count(prefix, from, until, fresh))
    }

    fn commit(&mut self, batch: &[Write], journal: &[Event], durability: Durability) -> Result<Vec<Version>, Error> {
        self.call(true, |store| store.commit(batch, journal, durability))
    }

    fn atomic_writes(&mut self) -> u32 {
        self.store.atomic_writes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;
    use plat_core::store::{Action, Expected};

    fn put(store: &mut impl Store) -> Result<Vec<Version>, Error> {
        let write = Write { key: "k".into(), expected: Expected::Absent, action: Action::Put(b"v".to_vec()) };
        store.commit(&[write], &[], Durability::Process)
    }

    fn there(store: &mut impl Store) -> bool {
        store.read(&["k".into()], true).unwrap()[0].is_some()
    }

    #[test]
    fn each_fault_does_what_it_says() {
        let faulty = |fault| FaultyStore::new(MemoryStore::new()).counting(Counted::Commits).with(1, fault);

        let mut store = faulty(Fault::Fail(Error::TooLarge));
        assert_eq!(put(&mut store), Err(Error::TooLarge));
        assert!(!there(&mut store));
        assert!(put(&mut store).is_ok(), "only the first call goes wrong");
        assert_eq!(store.calls(), 2);

        let mut store = faulty(Fault::LoseReply);
        assert_eq!(put(&mut store), Err(Error::UnknownOutcome));
        assert!(there(&mut store));

        let mut store = faulty(Fault::Delay(Duration::from_millis(20)));
        let start = std::time::Instant::now();
        assert!(put(&mut store).is_ok());
        assert!(start.elapsed() >= Duration::from_millis(20));

        for (fault, applied) in [(Fault::CrashBefore(Crash::Panic), false), (Fault::CrashAfter(Crash::Panic), true)] {
            let mut store = faulty(fault);
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| put(&mut store))).unwrap_err();
            assert_eq!(caught.downcast_ref(), Some(&Crashed { call: 1 }));
            assert_eq!(there(&mut store), applied);
        }

        let mut store = FaultyStore::new(MemoryStore::new()).with(2, Fault::LoseReply);
        assert!(!there(&mut store));
        assert!(matches!(store.read(&[], true), Err(Error::Unavailable(_))));
    }
}

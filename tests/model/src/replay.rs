//! Operations that stop at each call to the store: the core cannot be suspended, so an operation is run from its start
//! with the answers that it got so far, until it makes a call that has no answer yet.
//!
//! What an operation does depends on nothing but these answers and the time. So each sequence of answers is a place in a
//! tree, is run once, and is a number from then on.

use crate::contents::{Answered, Call, Contents, Fixed, Reply, look};
use crate::hash::{HashKeyed, hash_bytes, mix};
use crate::operation::{Answer, Operation};
use plat_core::clock::{Clock, Instant};
use plat_core::store::{Durability, Entry, Error, Event, Page, Store, Version, Write};
use std::rc::Rc;

/// A place in the tree.
pub type Place = u32;

/// What an operation does next.
#[derive(Clone, Debug)]
pub enum Next {
    /// It calls the store.
    Call(Rc<Call>),
    /// It ends.
    End(Rc<Answer>),
}

#[derive(Debug)]
struct Node<O> {
    operation: Rc<O>,
    time: u64,
    /// The place before, and the answer that led here.
    before: Option<(Place, Reply)>,
    next: Next,
    /// How many calls were answered.
    depth: u32,
}

/// All sequences of answers that were met.
#[derive(Debug)]
pub struct Tree<O> {
    nodes: Vec<Node<O>>,
    places: HashKeyed<Place>,
    atomic_writes: u32,
}

struct Standing(u64);

impl Clock for Standing {
    fn now(&mut self) -> Instant {
        Instant { seconds: self.0, nanoseconds: 0 }
    }

    fn boot_id(&mut self) -> Option<String> {
        None
    }
}

/// A clock that stands at a time, in seconds since 1970.
pub fn standing(seconds: u64) -> impl Clock {
    Standing(seconds)
}

/// A store that knows the first answers. At the first call without one it notes that call, and refuses everything from
/// then on: the operation ends soon, and what it answers is thrown away.
struct Recorded<'r> {
    replies: Vec<&'r Reply>,
    answered: usize,
    call: Option<Call>,
    atomic_writes: u32,
}

impl Recorded<'_> {
    fn reply(&mut self, call: impl FnOnce() -> Call) -> Result<Reply, Error> {
        let suspended = Err(Error::Denied("suspended".into()));
        if self.call.is_some() {
            return suspended;
        }
        match self.replies.get(self.answered) {
            Some(Reply::Failed(error)) => {
                self.answered += 1;
                Err(error.clone())
            }
            Some(reply) => {
                self.answered += 1;
                Ok((*reply).clone())
            }
            None => {
                self.call = Some(call());
                suspended
            }
        }
    }
}

impl Store for Recorded<'_> {
    fn read(&mut self, keys: &[String], fresh: bool) -> Result<Vec<Option<Entry>>, Error> {
        match self.reply(|| Call::Read(keys.to_vec(), fresh))? {
            Reply::Read(entries) => Ok(entries),
            other => panic!("the operation is not deterministic: it reads, and got {other:?}"),
        }
    }

    fn scan(
        &mut self,
        prefix: &str,
        from: Option<&str>,
        limit: u32,
        keys_only: bool,
        fresh: bool,
    ) -> Result<Page, Error> {
        let call = || Call::Scan(prefix.into(), from.unwrap_or_default().into(), limit, keys_only, fresh);
        match self.reply(call)? {
            Reply::Scan(page) => Ok(page),
            other => panic!("the operation is not deterministic: it scans, and got {other:?}"),
        }
    }

    fn count(&mut self, prefix: &str, from: Option<&str>, until: Option<&str>, _fresh: bool) -> Result<u64, Error> {
        let call = || Call::Count(prefix.into(), from.unwrap_or_default().into(), until.map(str::to_owned));
        match self.reply(call)? {
            Reply::Count(count) => Ok(count),
            other => panic!("the operation is not deterministic: it counts, and got {other:?}"),
        }
    }

    fn commit(&mut self, batch: &[Write], _: &[Event], _: Durability) -> Result<Vec<Version>, Error> {
        if batch.len() > self.atomic_writes as usize {
            return Err(Error::TooLarge);
        }
        match self.reply(|| Call::Commit(batch.to_vec()))? {
            Reply::Commit(versions) => Ok(versions),
            other => panic!("the operation is not deterministic: it commits, and got {other:?}"),
        }
    }

    fn atomic_writes(&mut self) -> u32 {
        self.atomic_writes
    }
}

impl<O: Operation> Tree<O> {
    /// An empty tree, for stores that take so many writes in a commit.
    pub fn new(atomic_writes: u32) -> Self {
        Self { nodes: Vec::new(), places: HashKeyed::default(), atomic_writes }
    }

    /// How often an operation was run to find its next call.
    pub fn runs(&self) -> usize {
        self.nodes.len()
    }

    /// What is done next at a place.
    pub fn next(&self, place: Place) -> &Next {
        &self.nodes[place as usize].next
    }

    /// The operation of a place.
    pub fn operation(&self, place: Place) -> &Rc<O> {
        &self.nodes[place as usize].operation
    }

    /// How many calls were answered on the way to a place.
    pub fn depth(&self, place: Place) -> u32 {
        self.nodes[place as usize].depth
    }

    /// Where an operation is that has not begun.
    pub fn root(&mut self, operation: &O, time: u64, client: u8, fixed: &Fixed) -> Place {
        let text = format!("{operation:?} {time} {client}");
        let hash = mix(1, hash_bytes(text.as_bytes()));
        let place = match self.places.get(&hash) {
            Some(place) => *place,
            None => self.grow(hash, Rc::new(operation.clone()), time, None, 0),
        };
        self.skip(place, fixed)
    }

    /// Where an operation is after an answer.
    pub fn after(&mut self, place: Place, answered: &Answered, fixed: &Fixed) -> Place {
        let place = self.step(place, answered);
        self.skip(place, fixed)
    }

    fn step(&mut self, place: Place, answered: &Answered) -> Place {
        let hash = mix(mix(2, u128::from(place)), answered.hash());
        if let Some(place) = self.places.get(&hash) {
            return *place;
        }
        let node = &self.nodes[place as usize];
        let (operation, time, depth) = (Rc::clone(&node.operation), node.time, node.depth + 1);
        self.grow(hash, operation, time, Some((place, answered.reply())), depth)
    }

    /// Answers calls whose answers are the same at any time: they are no steps.
    fn skip(&mut self, mut place: Place, fixed: &Fixed) -> Place {
        loop {
            let Next::Call(call) = self.next(place) else { return place };
            if !call.is_fixed() {
                return place;
            }
            let answered = look(&Contents::default(), fixed, call, None);
            place = self.step(place, &answered);
        }
    }

    fn grow(
        &mut self,
        hash: u128,
        operation: Rc<O>,
        time: u64,
        before: Option<(Place, Reply)>,
        depth: u32,
    ) -> Place {
        let mut replies = Vec::new();
        let mut at = before.as_ref();
        while let Some((place, reply)) = at {
            replies.push(reply);
            at = self.nodes[*place as usize].before.as_ref();
        }
        replies.reverse();
        let mut store = Recorded { replies, answered: 0, call: None, atomic_writes: self.atomic_writes };
        let answer = operation.run(&mut store, &mut Standing(time));
        assert_eq!(store.answered, store.replies.len(), "the operation is not deterministic: it ended early");
        let next = match store.call {
            Some(call) => Next::Call(Rc::new(call)),
            None => Next::End(Rc::new(answer)),
        };
        let place = Place::try_from(self.nodes.len()).expect("fewer than 2^32 places");
        self.nodes.push(Node { operation, time, before, next, depth });
        self.places.insert(hash, place);
        place
    }
}

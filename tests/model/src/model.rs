//! States, and the steps between them.

use crate::contents::{Answered, Call, Contents, Held, Maker, Meaning, look};
use crate::hash::{HashKeyed, hash_bytes, mix};
use crate::operation::{Grant, Operation, Outcome};
use crate::replay::{Next, Place, Tree};
use crate::scope::{End, Mutation, Scope};
use plat_core::store::{Action, Error, Expected, Version, Write};
use std::fmt::Write as _;
use std::rc::Rc;

/// Calls to the store that one operation may make, repetitions not counted: 8 tries of some dozens of calls.
pub const CALLS_MAX: u32 = 600;

/// How far a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Its operation has made no call yet.
    Ready,
    /// Its operation has begun.
    Running,
    /// It has nothing to do any more.
    Done,
    /// It was cut off and does not come back.
    Gone,
}

/// A client.
#[derive(Clone, Debug)]
struct Client {
    phase: Phase,
    /// Which of its operations.
    operation: u8,
    /// Where in it.
    place: Place,
    /// How often the operation was repeated because of its answer.
    repeats: u8,
    /// The addresses that were free all the time since it began; a bit each.
    free: u64,
    /// A write that a mutation puts off.
    put_off: Option<Rc<Write>>,
}

/// A commit that may still be made.
#[derive(Debug)]
struct Late {
    batch: Vec<Write>,
    hash: u128,
}

impl Late {
    fn new(batch: &[Write]) -> Rc<Self> {
        let hash = batch.iter().fold(3, |hash, write| mix(hash, hash_write(write)));
        Rc::new(Self { batch: batch.to_vec(), hash })
    }
}

/// A state.
#[derive(Clone, Debug)]
pub struct State {
    contents: Contents,
    clients: Vec<Client>,
    /// What was granted by an answer and is in use.
    live: Vec<Grant>,
    /// Commits whose answer was lost and that may still be made.
    late: Vec<Rc<Late>>,
    faults: u8,
    time: u64,
}

impl State {
    fn hash(&self) -> u128 {
        let mut hash = mix(self.contents.hash(), u128::from(self.faults) << 64 | u128::from(self.time));
        for client in &self.clients {
            let small = u128::from(client.place)
                | u128::from(client.operation) << 32
                | (client.phase as u128) << 40
                | u128::from(client.repeats) << 48
                | u128::from(client.free) << 64;
            hash = mix(hash, small);
            if let Some(write) = &client.put_off {
                hash = mix(hash, hash_write(write));
            }
        }
        // Neither grants nor late writes have an order.
        let live = self.live.iter().fold(0, |all: u128, grant| {
            all.wrapping_add(mix(hash_bytes(grant.handle.as_bytes()), grant.address.bits()))
        });
        let late = self.late.iter().fold(0, |all: u128, late| all.wrapping_add(late.hash));
        mix(mix(hash, live), late)
    }
}

fn hash_write(write: &Write) -> u128 {
    let expected = match &write.expected {
        Expected::Absent => 0,
        Expected::At(version) => 1 + u128::from(crate::contents::number_of(version)),
    };
    let action = match &write.action {
        Action::Put(value) => hash_bytes(value),
        Action::Delete => 1,
        Action::Check => 2,
    };
    mix(mix(hash_bytes(write.key.as_bytes()), expected), action)
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A client's call is answered.
    Call(u8),
    /// Its commit is refused without a reason.
    Conflict(u8),
    /// The answer to its commit is lost.
    Lost(u8),
    /// Its look shows what was before.
    Stale(u8),
    /// It is cut off at its commit, and does not come back.
    Gone(u8),
    /// It is cut off at its commit, and repeats the operation.
    Again(u8),
    /// It is cut off at its commit, and undoes the operation.
    Undo(u8),
    /// A late commit is made.
    Land(u8),
    /// The write that a mutation puts off is made.
    PutOff(u8),
    /// The clock goes on by so many seconds.
    Clock(u64),
}

/// A scope with what was found out about it.
pub struct Model<O> {
    /// The scope.
    pub scope: Scope<O>,
    /// What operations do.
    pub tree: Tree<O>,
    ended: HashKeyed<()>,
    /// How many operations were answered on all paths.
    pub answered: u64,
    /// How many answers asked for a repetition.
    pub repeated: u64,
}

/// What is wrong, in words.
pub type Violation = String;

impl<O: Operation> Model<O> {
    /// Begins.
    pub fn new(scope: Scope<O>) -> Self {
        let tree = Tree::new(scope.atomic_writes);
        Self { scope, tree, ended: HashKeyed::default(), answered: 0, repeated: 0 }
    }

    /// How many different stores were left at the end of paths.
    pub fn ends(&self) -> usize {
        self.ended.len()
    }

    /// Where all begins.
    pub fn first(&mut self) -> State {
        let mut state = State {
            contents: self.scope.start.clone(),
            clients: Vec::new(),
            live: Vec::new(),
            late: Vec::new(),
            faults: self.scope.faults.times,
            time: self.scope.time,
        };
        for _ in 0..self.scope.clients.len() {
            state.clients.push(Client {
                phase: Phase::Ready,
                operation: 0,
                place: 0,
                repeats: 0,
                free: 0,
                put_off: None,
            });
        }
        for client in 0..self.scope.clients.len() {
            self.begin(&mut state, client, 0);
        }
        state
    }

    /// Makes a client ready for one of its operations, or for the first after it that has anything to do.
    fn begin(&mut self, state: &mut State, client: usize, operation: usize) {
        let mut operation = operation;
        let bound = loop {
            match self.scope.clients[client].get(operation) {
                None => break None,
                Some(next) => match next.bound(&state.live) {
                    Some(bound) => break Some(bound),
                    None => operation += 1,
                },
            }
        };
        state.clients[client].operation = u8::try_from(operation).expect("few operations");
        state.clients[client].repeats = 0;
        match bound {
            Some(bound) => self.ready(state, client, &bound),
            None => {
                let it = &mut state.clients[client];
                (it.phase, it.place, it.free) = (Phase::Done, 0, 0);
            }
        }
    }

    fn ready(&mut self, state: &mut State, client: usize, operation: &O) {
        // Each operation of a client begins a second after the one before.
        let time = state.time + u64::from(state.clients[client].operation);
        let fixed = &self.scope.fixed[client];
        let place = self.tree.root(operation, time, u8::try_from(client).expect("few clients"), fixed);
        let it = &mut state.clients[client];
        (it.phase, it.place, it.free) = (Phase::Ready, place, 0);
        it.put_off = None;
        // An operation that calls nothing is answered at its first step.
    }

    /// What may happen in a state.
    pub fn steps(&self, state: &State, steps: &mut Vec<Step>) {
        steps.clear();
        let faults = self.scope.faults;
        let is_faulty = state.faults > 0;
        for (number, client) in (0u8..).zip(&state.clients) {
            if matches!(client.phase, Phase::Done | Phase::Gone) {
                continue;
            }
            if client.put_off.is_some() && self.is_due(client) {
                steps.push(Step::PutOff(number));
                if is_faulty && faults.crashes {
                    steps.push(Step::Gone(number));
                }
                continue;
            }
            steps.push(Step::Call(number));
            if !is_faulty {
                continue;
            }
            match self.tree.next(client.place) {
                Next::Call(call) => match call.as_ref() {
                    Call::Commit(_) => {
                        if faults.conflicts {
                            steps.push(Step::Conflict(number));
                        }
                        if faults.lost_replies {
                            steps.push(Step::Lost(number));
                        }
                        if faults.crashes {
                            steps.push(Step::Gone(number));
                            steps.push(Step::Again(number));
                            if self.tree.operation(client.place).undo().is_some() {
                                steps.push(Step::Undo(number));
                            }
                        }
                    }
                    call if faults.stale_looks && call.may_lag() => {
                        let fixed = &self.scope.fixed[usize::from(number)];
                        let lagging = look(&state.contents, fixed, call, Some(number)).hash();
                        if lagging != look(&state.contents, fixed, call, None).hash() {
                            steps.push(Step::Stale(number));
                        }
                    }
                    _ => {}
                },
                Next::End(_) => {}
            }
        }
        for (number, late) in (0u8..).zip(&state.late) {
            if late.batch.iter().all(|write| state.contents.is_as_expected(write)) {
                steps.push(Step::Land(number));
            }
        }
    }

    /// A write that is put off is due after the client's next commit.
    fn is_due(&self, client: &Client) -> bool {
        match self.tree.next(client.place) {
            Next::Call(call) => !matches!(call.as_ref(), Call::Commit(_)),
            Next::End(_) => true,
        }
    }

    fn maker(&self, state: &State, client: u8) -> Maker {
        Maker { client, keeps_before: self.scope.faults.stale_looks && state.faults > 0 }
    }

    /// Takes a step.
    ///
    /// # Errors
    /// What is wrong then.
    pub fn take(&mut self, before: &State, step: Step) -> Result<State, Violation> {
        let mut state = before.clone();
        match step {
            Step::Clock(seconds) => {
                state.time += seconds;
                return Ok(state);
            }
            Step::Land(number) => {
                let late = state.late.remove(usize::from(number));
                let maker = self.maker(&state, u8::MAX);
                state.contents.commit(&mut self.scope.values, &late.batch, maker).expect("it was looked at");
                self.changed(&mut state)?;
                return Ok(state);
            }
            Step::PutOff(client) => {
                if let Some(write) = state.clients[usize::from(client)].put_off.take() {
                    let maker = self.maker(&state, client);
                    state.contents.write(&mut self.scope.values, &write, maker);
                    self.changed(&mut state)?;
                }
                return Ok(state);
            }
            _ => {}
        }
        let (Step::Call(client)
        | Step::Conflict(client)
        | Step::Lost(client)
        | Step::Stale(client)
        | Step::Gone(client)
        | Step::Again(client)
        | Step::Undo(client)) = step
        else {
            unreachable!("the others were handled")
        };
        let index = usize::from(client);
        if state.clients[index].phase == Phase::Ready {
            self.start(&mut state, index);
        }
        if !matches!(step, Step::Call(_)) {
            state.faults -= 1;
        }
        let place = state.clients[index].place;
        let is_cut_off = matches!(step, Step::Gone(_) | Step::Again(_) | Step::Undo(_));
        let call = match self.tree.next(place) {
            Next::Call(call) => Rc::clone(call),
            Next::End(_) if is_cut_off => {
                self.cut_off(&mut state, index, step);
                return Ok(state);
            }
            Next::End(_) => {
                self.end(&mut state, index)?;
                return Ok(state);
            }
        };
        let answered = match (step, call.as_ref()) {
            (Step::Conflict(_), Call::Commit(batch)) => {
                Answered::Failed(Error::Conflict(batch.iter().map(|write| write.key.clone()).take(1).collect()))
            }
            (Step::Lost(_), Call::Commit(batch)) => {
                state.late.push(Late::new(batch));
                match self.scope.mutation {
                    Some(Mutation::LostReplyIsConflict) => {
                        Answered::Failed(Error::Conflict(vec![batch[0].key.clone()]))
                    }
                    _ => Answered::Failed(Error::UnknownOutcome),
                }
            }
            (Step::Gone(_) | Step::Again(_) | Step::Undo(_), _) => {
                if let Call::Commit(batch) = call.as_ref() {
                    state.late.push(Late::new(batch));
                }
                self.cut_off(&mut state, index, step);
                self.changed(&mut state)?;
                return Ok(state);
            }
            (Step::Stale(_), _) => look(&state.contents, &self.scope.fixed[index], &call, Some(client)),
            (_, Call::Commit(batch)) => self.commit(&mut state, client, batch),
            (_, _) => self.look(&state, client, &call),
        };
        let place = self.tree.after(place, &answered, &self.scope.fixed[index]);
        if self.tree.depth(place) > CALLS_MAX {
            return Err(format!("{} made more than {CALLS_MAX} calls", self.tree.operation(place)));
        }
        state.clients[index].place = place;
        // Looks change nothing.
        if matches!(call.as_ref(), Call::Commit(_)) {
            self.changed(&mut state)?;
        }
        // What is not a commit ends with its last call; the answer is no step of its own.
        if matches!(self.tree.next(place), Next::End(_)) && state.clients[index].put_off.is_none() {
            self.end(&mut state, index)?;
        }
        Ok(state)
    }

    fn look(&self, state: &State, client: u8, call: &Call) -> Answered {
        let answered = look(&state.contents, &self.scope.fixed[usize::from(client)], call, None);
        if self.scope.mutation != Some(Mutation::OverlapUnseen) {
            return answered;
        }
        match (call, answered) {
            // The blocks around a new one are read together; others' blocks are counted by their length.
            (Call::Read(keys, _), Answered::Read(found))
                if keys.len() > 1 && keys.iter().all(|key| key.starts_with("block/")) =>
            {
                Answered::Read(vec![None; found.len()])
            }
            (Call::Count(prefix, from, until), Answered::Count(count)) if prefix.starts_with("block/") => {
                // The look for a free slice spans the pool; the check of a new block spans no more than the block.
                let is_check = until.as_ref().is_some_and(|until| from.len() + 1 == until.len()) && count > 0;
                let is_narrow = prefix.ends_with("/32/");
                Answered::Count(if is_check && is_narrow { 0 } else { count })
            }
            (_, answered) => answered,
        }
    }

    fn commit(&mut self, state: &mut State, client: u8, batch: &[Write]) -> Answered {
        let maker = self.maker(state, client);
        let mutation = self.scope.mutation;
        let is_block = |write: &Write| write.key.starts_with("block/");
        let is_handle = |write: &Write| write.key.starts_with("handle/");
        if mutation == Some(Mutation::HandleAfterBlock)
            && let [write] = batch
            && is_handle(write)
            && matches!(write.action, Action::Put(_))
        {
            let number = state.contents.version(&write.key).unwrap_or(0);
            state.clients[usize::from(client)].put_off = Some(Rc::new(write.clone()));
            return Answered::Commit(vec![Version((number + 1).to_be_bytes().to_vec())]);
        }
        if mutation == Some(Mutation::FenceLeftOut)
            && let [Write { key, action: Action::Put(bytes), .. }] = batch
            && let Some(there) = state.contents.get(key)
            && let Meaning::Block(_, holder, held) = &self.scope.values.value(key, bytes).meaning
            && let Meaning::Block(_, holder_there, held_there) = &there.value.meaning
            && (holder, held) == (holder_there, held_there)
        {
            return Answered::Commit(vec![Version(there.version.to_be_bytes().to_vec())]);
        }
        let is_loose = |write: &Write| match mutation {
            Some(Mutation::BlockVersionIgnored) => {
                is_block(write)
                    && matches!(write.action, Action::Put(_))
                    && matches!(write.expected, Expected::At(_))
            }
            Some(Mutation::BlockAbsenceIgnored) => is_block(write) && write.expected == Expected::Absent,
            Some(Mutation::BlockDeletedUnseen) => is_block(write) && write.action == Action::Delete,
            _ => false,
        };
        let mut mended = batch.to_vec();
        for write in &mut mended {
            if is_loose(write) {
                write.expected = match state.contents.version(&write.key) {
                    None => Expected::Absent,
                    Some(number) => Expected::At(Version(number.to_be_bytes().to_vec())),
                };
            }
        }
        match state.contents.commit(&mut self.scope.values, &mended, maker) {
            Ok(versions) => Answered::Commit(versions),
            Err(error) => Answered::Failed(error),
        }
    }

    /// An operation begins: what it ends is in use no more, and what is free now might be its.
    fn start(&mut self, state: &mut State, client: usize) {
        let operation = self.tree.operation(state.clients[client].place);
        if let Some(handle) = operation.ends() {
            state.live.retain(|grant| grant.handle.as_ref() != handle);
        }
        let takes = operation.takes();
        let free = if takes { self.free(&state.contents) } else { 0 };
        let it = &mut state.clients[client];
        (it.phase, it.free) = (Phase::Running, free);
    }

    /// Free addresses, a bit each.
    fn free(&self, contents: &Contents) -> u64 {
        let Some(first) = self.scope.addresses.first() else { return 0 };
        let mut free = u64::MAX >> (64 - self.scope.addresses.len().clamp(1, 64));
        for held in held(contents) {
            let distance = held.address.bits().wrapping_sub(first.bits());
            if distance < 64 {
                free &= !(1 << distance);
            }
        }
        free
    }

    fn cut_off(&mut self, state: &mut State, client: usize, step: Step) {
        let it = &mut state.clients[client];
        it.put_off = None;
        match step {
            Step::Gone(_) => {
                (it.phase, it.place, it.free) = (Phase::Gone, 0, 0);
            }
            Step::Undo(_) => {
                let undo = self.tree.operation(it.place).undo();
                if let Some(undo) = undo {
                    self.ready(state, client, &undo);
                }
            }
            _ => {
                let operation = Rc::clone(self.tree.operation(it.place));
                self.ready(state, client, &operation);
            }
        }
    }

    /// Looks at a store that has changed, or may have.
    fn changed(&mut self, state: &mut State) -> Result<(), Violation> {
        let free = self.free(&state.contents);
        for client in &mut state.clients {
            client.free &= free;
        }
        let contents = &state.contents;
        state.late.retain(|late| late.batch.iter().all(|write| contents.may_be_as_expected(write)));
        (self.scope.invariant)(contents)?;
        for grant in &state.live {
            let is_held = held(contents).any(|held| {
                held.address == grant.address
                    && held.handle.as_deref() == Some(grant.handle.as_ref())
                    && !held.is_cooling
            });
            if !is_held && !self.scope.addresses.is_empty() {
                let (address, handle) = (grant.address.to_ip(), &grant.handle);
                return Err(format!("{address} was granted to {handle}, who never gave it back, and is not held"));
            }
        }
        Ok(())
    }

    /// An operation is answered.
    fn end(&mut self, state: &mut State, client: usize) -> Result<(), Violation> {
        let it = &state.clients[client];
        let Next::End(answer) = self.tree.next(it.place).clone() else { return Ok(()) };
        let operation = Rc::clone(self.tree.operation(it.place));
        self.answered += 1;
        match answer.outcome {
            Outcome::Wrong => return Err(format!("{operation} was answered with: {}", answer.text)),
            Outcome::Exhausted if it.free != 0 => {
                let free = self.scope.addresses.get(it.free.trailing_zeros() as usize);
                let free = free.map(|address| address.to_ip().to_string()).unwrap_or_default();
                return Err(format!("{operation} was answered with: {}; and {free} was free all the time", answer.text));
            }
            Outcome::Repeat => {
                self.repeated += 1;
                let repeats = it.repeats + 1;
                let repeats_max = self.scope.repeats_max;
                if repeats > repeats_max && self.scope.may_give_up {
                    let next = usize::from(it.operation) + 1;
                    self.begin(state, client, next);
                    return self.changed(state);
                }
                if repeats > repeats_max {
                    return Err(format!("{operation} was repeated {repeats_max} times and is still: {}", answer.text));
                }
                self.ready(state, client, &operation);
                state.clients[client].repeats = repeats;
                return Ok(());
            }
            Outcome::Done | Outcome::Exhausted => {}
        }
        for grant in &answer.grants {
            if let Some(other) = state.live.iter().find(|live| live.address == grant.address)
                && other.handle != grant.handle
            {
                let address = grant.address.to_ip();
                return Err(format!("{address} was granted to {} and to {}", other.handle, grant.handle));
            }
            if !state.live.iter().any(|live| live.address == grant.address) {
                state.live.push(grant.clone());
            }
        }
        let next = usize::from(it.operation) + 1;
        self.begin(state, client, next);
        self.changed(state)
    }

    /// Whether nobody has anything to do any more; late commits may be left.
    pub fn is_end(state: &State) -> bool {
        state.clients.iter().all(|client| matches!(client.phase, Phase::Done | Phase::Gone))
    }

    /// Looks at an end.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check_end(&mut self, state: &State) -> Result<(), Violation> {
        if self.ended.insert(state.contents.hash(), ()).is_some() {
            return Ok(());
        }
        let free = self.free(&state.contents).count_ones();
        let scope = &mut self.scope;
        (scope.at_end)(&mut End {
            contents: state.contents.clone(),
            fixed: &scope.fixed[0],
            values: &mut scope.values,
            atomic_writes: scope.atomic_writes,
            time: state.time + 1000,
            free,
        })
    }

    /// What a step is, in words.
    pub fn describe(&self, state: &State, step: Step) -> String {
        let call = |client: u8| {
            let it = &state.clients[usize::from(client)];
            let mut text = format!("client {client}, {}", self.tree.operation(it.place));
            if it.phase == Phase::Ready {
                text += " begins";
            }
            match self.tree.next(it.place) {
                Next::End(answer) => write!(text, ": {}", answer.text),
                Next::Call(call) => write!(text, ": {}", describe_call(call)),
            }
            .expect("a text takes all");
            text
        };
        match step {
            Step::Call(client) => {
                let it = &state.clients[usize::from(client)];
                let refused = match self.tree.next(it.place) {
                    Next::Call(call) => match call.as_ref() {
                        Call::Commit(batch) => batch.iter().any(|write| !state.contents.is_as_expected(write)),
                        _ => false,
                    },
                    Next::End(_) => false,
                };
                if refused { format!("{} -> refused", call(client)) } else { call(client) }
            }
            Step::Conflict(client) => format!("{} -> refused without a reason", call(client)),
            Step::Lost(client) => format!("{} -> the reply is lost", call(client)),
            Step::Stale(client) => format!("{} -> a stale answer", call(client)),
            Step::Gone(client) => format!("{} -> cut off, does not come back", call(client)),
            Step::Again(client) => format!("{} -> cut off, begins again", call(client)),
            Step::Undo(client) => format!("{} -> cut off, undoes it", call(client)),
            Step::Land(number) => {
                let batch = Call::Commit(state.late[usize::from(number)].batch.clone());
                format!("a late commit is made: {}", describe_call(&batch))
            }
            Step::PutOff(client) => format!("client {client}: the write that was put off is made"),
            Step::Clock(seconds) => format!("the clock goes on by {seconds} s"),
        }
    }

    /// The hash of a state.
    pub fn hash(state: &State) -> u128 {
        state.hash()
    }
}

fn describe_call(call: &Call) -> String {
    match call {
        Call::Read(keys, _) => match keys.as_slice() {
            [first, .., last] => format!("read {first} .. {last}"),
            _ => format!("read {}", keys.join(" ")),
        },
        Call::Scan(prefix, ..) => format!("scan {prefix}"),
        Call::Count(prefix, from, _) if from.is_empty() => format!("count {prefix}"),
        Call::Count(_, from, until) => format!("count {from} until {}", until.as_deref().unwrap_or("the end")),
        Call::Commit(batch) => {
            let one = |write: &Write| {
                let expected = match &write.expected {
                    Expected::Absent => "absent".to_owned(),
                    Expected::At(version) => format!("at {}", crate::contents::number_of(version)),
                };
                let verb = match &write.action {
                    Action::Put(_) => "put",
                    Action::Delete => "delete",
                    Action::Check => "check",
                };
                format!("{verb} {} ({expected})", write.key)
            };
            batch.iter().map(one).collect::<Vec<_>>().join(", ")
        }
    }
}

/// Every address that a block holds.
pub fn held(contents: &Contents) -> impl Iterator<Item = &Held> {
    contents.live().flat_map(|(_, value)| match &value.meaning {
        Meaning::Block(_, _, held) => held.as_slice(),
        _ => &[],
    })
}

//! Going through the states: all of them, the shortest way to a violation, or at random.

use crate::hash::HashKeyed;
use crate::model::{Model, State, Step, Violation};
use crate::operation::Operation;
use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

/// What was explored.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The scope's name.
    pub scope: String,
    /// Different states.
    pub states: usize,
    /// Steps between them.
    pub steps: u64,
    /// Orders: ways from the beginning to an end.
    pub orders: f64,
    /// Answers of operations, on all steps.
    pub answers: u64,
    /// Of those, how many asked for a repetition.
    pub repeats: u64,
    /// Runs of the core's operations.
    pub runs: usize,
    /// Different stores at the ends.
    pub ends: usize,
    /// The longest way.
    pub longest: usize,
    /// How long it took.
    pub time: Duration,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scope, states, steps, orders, answers, repeats, runs, ends, longest, time } = self;
        write!(
            f,
            "{scope}: {states} states, {steps} steps, {orders:.2e} orders of at most {longest} steps, {answers} answers \
             ({repeats} to be repeated), {runs} runs of operations, {ends} stores at the end, {:.1} s",
            time.as_secs_f64()
        )
    }
}

/// How a violation came about.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The scope's name.
    pub scope: String,
    /// What is wrong.
    pub violation: Violation,
    /// The steps, in words.
    pub steps: Vec<String>,
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.scope, self.violation)?;
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(f, "{:>4}. {step}", number + 1)?;
        }
        Ok(())
    }
}

struct Frame {
    state: State,
    hash: u128,
    steps: Vec<Step>,
    next: usize,
    orders: f64,
}

/// Goes through all states, depth first.
///
/// # Errors
/// The first violation that is met, with the way to it.
///
/// # Panics
/// If there are more than `states_max` states: a scope must be explored wholly.
pub fn all<O: Operation>(model: &mut Model<O>, states_max: usize) -> Result<Summary, Box<Trace>> {
    let begun = Instant::now();
    let mut orders: HashKeyed<f64> = HashKeyed::default();
    let (mut steps, mut longest) = (0u64, 0);
    let first = model.first();
    let mut frames = vec![frame(model, first)];
    let total = loop {
        let Some(frame) = frames.last_mut() else { break 0.0 };
        longest = longest.max(frame.next.min(1));
        if frame.next == 0 && Model::<O>::is_end(&frame.state) {
            frame.orders += 1.0;
            let state = frame.state.clone();
            if let Err(violation) = model.check_end(&state) {
                return Err(Box::new(trace(model, &frames, violation)));
            }
        }
        let Some(frame) = frames.last_mut() else { break 0.0 };
        let Some(step) = frame.steps.get(frame.next).copied() else {
            let (hash, found) = (frame.hash, frame.orders);
            orders.insert(hash, found);
            longest = longest.max(frames.len());
            frames.pop();
            match frames.last_mut() {
                None => break found,
                Some(frame) => frame.orders += found,
            }
            continue;
        };
        frame.next += 1;
        steps += 1;
        let state = match model.take(&frame.state, step) {
            Ok(state) => state,
            Err(violation) => return Err(Box::new(trace(model, &frames, violation))),
        };
        let hash = Model::<O>::hash(&state);
        if let Some(known) = orders.get(&hash) {
            frame.orders += *known;
            continue;
        }
        assert!(orders.len() < states_max, "{}: more than {states_max} states", model.scope.name);
        let next = self::frame(model, state);
        frames.push(next);
    };
    Ok(Summary {
        scope: model.scope.name.clone(),
        states: orders.len(),
        steps,
        orders: total,
        answers: model.answered,
        repeats: model.repeated,
        runs: model.tree.runs(),
        ends: model.ends(),
        longest,
        time: begun.elapsed(),
    })
}

fn frame<O: Operation>(model: &Model<O>, state: State) -> Frame {
    let mut steps = Vec::new();
    model.steps(&state, &mut steps);
    Frame { hash: Model::<O>::hash(&state), state, steps, next: 0, orders: 0.0 }
}

fn trace<O: Operation>(model: &Model<O>, frames: &[Frame], violation: Violation) -> Trace {
    let steps = frames.iter().filter_map(|frame| {
        let step = frame.steps.get(frame.next.checked_sub(1)?)?;
        Some(model.describe(&frame.state, *step))
    });
    Trace { scope: model.scope.name.clone(), violation, steps: steps.collect() }
}

/// The shortest way to a violation; none if there is none within `states_max` states.
pub fn shortest<O: Operation>(model: &mut Model<O>, states_max: usize) -> Option<Trace> {
    let mut known: HashKeyed<()> = HashKeyed::default();
    let mut ways: Vec<(usize, Step)> = Vec::new();
    let mut waiting: VecDeque<(State, usize)> = VecDeque::new();
    let first = model.first();
    known.insert(Model::<O>::hash(&first), ());
    waiting.push_back((first, usize::MAX));
    let mut steps = Vec::new();
    while let Some((state, way)) = waiting.pop_front() {
        if Model::<O>::is_end(&state)
            && let Err(violation) = model.check_end(&state)
        {
            return Some(retrace(model, &ways, way, None, violation));
        }
        model.steps(&state, &mut steps);
        for step in steps.clone() {
            match model.take(&state, step) {
                Err(violation) => return Some(retrace(model, &ways, way, Some(step), violation)),
                Ok(next) => {
                    if known.len() < states_max && known.insert(Model::<O>::hash(&next), ()).is_none() {
                        ways.push((way, step));
                        waiting.push_back((next, ways.len() - 1));
                    }
                }
            }
        }
    }
    None
}

fn retrace<O: Operation>(
    model: &mut Model<O>,
    ways: &[(usize, Step)],
    mut way: usize,
    last: Option<Step>,
    violation: Violation,
) -> Trace {
    let mut steps: Vec<Step> = last.into_iter().collect();
    while let Some((before, step)) = ways.get(way) {
        steps.push(*step);
        way = *before;
    }
    steps.reverse();
    let mut state = model.first();
    let mut texts = Vec::new();
    for step in steps {
        texts.push(model.describe(&state, step));
        if let Ok(next) = model.take(&state, step) {
            state = next;
        }
    }
    Trace { scope: model.scope.name.clone(), violation, steps: texts }
}

/// Numbers that a seed determines (xorshift64*).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
}

/// One way through, chosen at random. Faults happen at one step in `fault_every`.
///
/// # Errors
/// A violation, with the way to it.
pub fn walk<O: Operation>(model: &mut Model<O>, seed: u64, fault_every: usize) -> Result<usize, Box<Trace>> {
    let mut random = Random::new(seed);
    let mut state = model.first();
    let mut taken = Vec::new();
    let mut steps = Vec::new();
    loop {
        model.steps(&state, &mut steps);
        if Model::<O>::is_end(&state) && (steps.is_empty() || random.below(2) == 0) {
            break;
        }
        let is_faulty = random.below(fault_every) == 0;
        let (plain, faults): (Vec<Step>, Vec<Step>) =
            steps.iter().partition(|step| matches!(step, Step::Call(_) | Step::Land(_) | Step::PutOff(_)));
        let among = if is_faulty && !faults.is_empty() { &faults } else { &plain };
        let mut step = among[random.below(among.len())];
        let clock_steps = &model.scope.clock_steps;
        if !clock_steps.is_empty() && random.below(40) == 0 {
            step = Step::Clock(clock_steps[random.below(clock_steps.len())]);
        }
        taken.push(model.describe(&state, step));
        match model.take(&state, step) {
            Ok(next) => state = next,
            Err(violation) => {
                let scope = format!("{}, seed {seed}", model.scope.name);
                return Err(Box::new(Trace { scope, violation, steps: taken }));
            }
        }
    }
    match model.check_end(&state) {
        Ok(()) => Ok(taken.len()),
        Err(violation) => {
            let scope = format!("{}, seed {seed}", model.scope.name);
            Err(Box::new(Trace { scope, violation, steps: taken }))
        }
    }
}

//! An ordered map that also knows how many keys lie before a key, in a time that grows with the logarithm.
//!
//! Sorted chunks of bounded length, and over their lengths a Fenwick tree. It knows nothing of stores.

/// The longest chunk. Long enough that splits, which rebuild the tree, are rare; short enough that shifting a chunk
/// costs less than finding it.
const CHUNK_LENGTH_MAX: usize = 256;

/// An ordered map with ranks.
#[derive(Clone, Debug)]
pub(crate) struct CountedMap<K, V> {
    /// None empty, but for the first of an empty map.
    chunks: Vec<Vec<(K, V)>>,
    /// A Fenwick tree: entry `i` (from 1) sums the lengths of the chunks that `i`'s lowest set bit covers.
    sums: Vec<u64>,
}

impl<K: Ord, V> CountedMap<K, V> {
    pub(crate) fn new() -> Self {
        Self { chunks: vec![Vec::new()], sums: vec![0; 2] }
    }

    /// The chunk that holds `key` or would.
    fn chunk<Q: Ord + ?Sized>(&self, key: &Q) -> usize
    where
        K: std::borrow::Borrow<Q>,
    {
        self.chunks.partition_point(|chunk| chunk.first().is_some_and(|(first, _)| first.borrow() <= key)).max(1) - 1
    }

    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> (usize, Result<usize, usize>)
    where
        K: std::borrow::Borrow<Q>,
    {
        let chunk = self.chunk(key);
        (chunk, self.chunks[chunk].binary_search_by(|(have, _)| have.borrow().cmp(key)))
    }

    fn rebuild_sums(&mut self) {
        let mut sums = vec![0; self.chunks.len() + 1];
        for (index, chunk) in self.chunks.iter().enumerate() {
            sums[index + 1] += chunk.len() as u64;
            let parent = (index + 1) + lowest_bit(index + 1);
            if parent < sums.len() {
                sums[parent] += sums[index + 1];
            }
        }
        self.sums = sums;
    }

    fn adjust(&mut self, chunk: usize, by: i64) {
        let mut at = chunk + 1;
        while at < self.sums.len() {
            self.sums[at] = self.sums[at].wrapping_add_signed(by);
            at += lowest_bit(at);
        }
    }

    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
    {
        let (chunk, place) = self.find(key);
        place.ok().map(|place| &self.chunks[chunk][place].1)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let (chunk, place) = self.find(&key);
        match place {
            Ok(place) => Some(std::mem::replace(&mut self.chunks[chunk][place].1, value)),
            Err(place) => {
                let entries = &mut self.chunks[chunk];
                entries.insert(place, (key, value));
                if entries.len() > CHUNK_LENGTH_MAX {
                    let upper = entries.split_off(CHUNK_LENGTH_MAX / 2);
                    self.chunks.insert(chunk + 1, upper);
                    self.rebuild_sums();
                } else {
                    self.adjust(chunk, 1);
                }
                None
            }
        }
    }

    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: std::borrow::Borrow<Q>,
    {
        let (chunk, place) = self.find(key);
        let (_, value) = self.chunks[chunk].remove(place.ok()?);
        if self.chunks[chunk].is_empty() && self.chunks.len() > 1 {
            self.chunks.remove(chunk);
            self.rebuild_sums();
        } else {
            self.adjust(chunk, -1);
        }
        Some(value)
    }

    /// How many keys are below `key`.
    pub(crate) fn rank<Q: Ord + ?Sized>(&self, key: &Q) -> u64
    where
        K: std::borrow::Borrow<Q>,
    {
        let (chunk, place) = self.find(key);
        let mut below = place.unwrap_or_else(|place| place) as u64;
        let mut at = chunk;
        while at > 0 {
            below += self.sums[at];
            at -= lowest_bit(at);
        }
        below
    }

    /// How many keys there are.
    pub(crate) fn len(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.len() as u64).sum()
    }

    /// The entries from `key` on, in order.
    pub(crate) fn from<Q: Ord + ?Sized>(&self, key: &Q) -> impl Iterator<Item = (&K, &V)>
    where
        K: std::borrow::Borrow<Q>,
    {
        let (chunk, place) = self.find(key);
        let place = place.unwrap_or_else(|place| place);
        self.chunks[chunk..].iter().flatten().skip(place).map(|(key, value)| (key, value))
    }
}

fn lowest_bit(number: usize) -> usize {
    number & number.wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_answers_as_a_btreemap_does(steps in proptest::collection::vec((any::<bool>(), 0u16..900), 0..2000)) {
            let mut ours = CountedMap::new();
            let mut theirs = BTreeMap::new();
            for (count, (insert, key)) in steps.into_iter().enumerate() {
                if insert {
                    prop_assert_eq!(ours.insert(key, count), theirs.insert(key, count));
                } else {
                    prop_assert_eq!(ours.remove(&key), theirs.remove(&key));
                }
                prop_assert_eq!(ours.get(&key), theirs.get(&key));
                prop_assert_eq!(ours.rank(&key), theirs.range(..key).count() as u64);
            }
            prop_assert_eq!(ours.len(), theirs.len() as u64);
            for key in [0, 1, 300, 899] {
                prop_assert_eq!(ours.from(&key).collect::<Vec<_>>(), theirs.range(key..).collect::<Vec<_>>());
            }
        }
    }
}

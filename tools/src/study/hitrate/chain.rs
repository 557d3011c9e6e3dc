//! Hash chaining: a key may be anywhere, and who leaves is chosen among all.
//!
//! In: a key. Out: whether it was there; if not, it is now, and when the cache was full another has
//! left. Which chain an item is in makes no difference to that, so that a map stands for the
//! chains. Each request is done in constant time, amortised. Nothing fails.

use super::cache::Cache;
use super::policy::Policy;
use std::collections::HashMap;

/// No neighbour.
const NONE: usize = usize::MAX;

#[derive(Debug, Clone, Copy)]
struct Node {
    key: u64,
    visited: bool,
    /// Towards the head, where new ones come.
    newer: usize,
    older: usize,
}

/// A cache.
#[derive(Debug)]
pub struct Chain {
    policy: Policy,
    capacity: usize,
    found: HashMap<u64, usize>,
    nodes: Vec<Node>,
    head: usize,
    tail: usize,
    /// CLOCK: the next place. SIEVE: the next item; none: the oldest.
    hand: usize,
}

impl Chain {
    /// An empty cache of `capacity` items.
    pub fn new(policy: Policy, capacity: usize) -> Self {
        Self {
            policy,
            capacity: capacity.max(1),
            found: HashMap::new(),
            nodes: Vec::new(),
            head: NONE,
            tail: NONE,
            hand: NONE,
        }
    }

    fn unlink(&mut self, at: usize) {
        let Some(&Node { newer, older, .. }) = self.nodes.get(at) else { return };
        match self.nodes.get_mut(newer) {
            Some(node) => node.older = older,
            None => self.head = older,
        }
        match self.nodes.get_mut(older) {
            Some(node) => node.newer = newer,
            None => self.tail = newer,
        }
    }

    fn link(&mut self, at: usize) {
        let head = std::mem::replace(&mut self.head, at);
        if let Some(node) = self.nodes.get_mut(at) {
            (node.newer, node.older) = (NONE, head);
        }
        match self.nodes.get_mut(head) {
            Some(node) => node.newer = at,
            None => self.tail = at,
        }
    }

    /// Makes a place free, unlinked.
    fn evict(&mut self) -> usize {
        let at = match self.policy {
            Policy::Lru => self.tail,
            Policy::Clock => self.swept(|_, at, places| (at + 1) % places, 0),
            Policy::Sieve => {
                let tail = self.tail;
                self.swept(|node, _, _| if node.newer == NONE { NONE } else { node.newer }, tail)
            }
        };
        if let Some(node) = self.nodes.get(at) {
            self.found.remove(&node.key);
        }
        self.unlink(at);
        at
    }

    /// Moves the hand on by `next` to the first that is not spared, and beyond; where there is no
    /// next, to `start`.
    fn swept(&mut self, next: impl Fn(&Node, usize, usize) -> usize, start: usize) -> usize {
        let places = self.nodes.len();
        loop {
            let at = if self.hand == NONE { start } else { self.hand };
            // The start is always there: the cache is full when a key must be evicted.
            let Some(node) = self.nodes.get_mut(at) else { return at };
            self.hand = next(node, at, places);
            if !std::mem::take(&mut node.visited) {
                return at;
            }
        }
    }
}

impl Cache for Chain {
    fn ask(&mut self, key: u64) -> bool {
        if let Some(&at) = self.found.get(&key) {
            if let Some(node) = self.nodes.get_mut(at) {
                node.visited = true;
            }
            if self.policy == Policy::Lru {
                self.unlink(at);
                self.link(at);
            }
            return true;
        }
        let node = Node { key, visited: false, newer: NONE, older: NONE };
        let at = if self.nodes.len() < self.capacity {
            self.nodes.push(node);
            self.nodes.len() - 1
        } else {
            let at = self.evict();
            if let Some(place) = self.nodes.get_mut(at) {
                *place = node;
            }
            at
        };
        self.link(at);
        self.found.insert(key, at);
        false
    }

    fn len(&self) -> usize {
        self.found.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// What each request finds: H or -.
    fn trace(policy: Policy, capacity: usize, keys: &str) -> String {
        let mut cache = Chain::new(policy, capacity);
        keys.bytes().map(|k| if cache.ask(k.into()) { 'H' } else { '-' }).collect()
    }

    #[test]
    fn by_hand() {
        // A capacity of three. LRU: d pushes b out, a was read.
        assert_eq!(trace(Policy::Lru, 3, "abcadabc"), "---H-H--");
        // CLOCK: a is spared, b leaves for d, the hand is at c; then c leaves for b, then a (no
        // longer spared, place 0) for c.
        assert_eq!(trace(Policy::Clock, 3, "abcadbca"), "---H----");
        // SIEVE: b leaves for d, the hand is at c, the next newer; c leaves for b though a is
        // older, then d for c: a stays.
        assert_eq!(trace(Policy::Sieve, 3, "abcadbca"), "---H---H");
    }

    #[test]
    fn full_lru_is_what_a_list_says() {
        for capacity in [1, 2, 7, 50] {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(capacity as u64);
            let mut cache = Chain::new(Policy::Lru, capacity);
            let mut list: Vec<u64> = Vec::new();
            for _ in 0..20_000 {
                let key = rng.random_range(0..100u64).min(rng.random_range(0..100));
                let known = list.iter().position(|k| *k == key).map(|at| list.remove(at));
                list.push(key);
                if list.len() > capacity {
                    list.remove(0);
                }
                assert_eq!(cache.ask(key), known.is_some());
                assert_eq!(cache.len(), list.len());
            }
        }
    }
}

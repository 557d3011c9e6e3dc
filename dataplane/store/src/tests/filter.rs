//! A device that writes whole replies is notified of every change before any reader can see it.

use super::*;
use crate::verbs::{Fetch, Recache, Tombstone, touch};
use gpu::index::{Feed, Filter, Stale, signature};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

type Hook = Box<dyn FnMut(KeyHash)>;

thread_local! {
    static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
}

/// The feed has been notified that this hash's key is about to change.
pub(crate) fn notified(hash: KeyHash) {
    HOOK.with_borrow_mut(|hook| hook.iter_mut().for_each(|hook| hook(hash)));
}

struct World {
    store: Arc<Store>,
    filter: Arc<Filter>,
    session: Session,
    watcher: Rc<RefCell<Session>>,
}

/// What others see of a key: its item, wherever the index says that it is.
type Seen = Option<(Vec<u8>, u32, u32, u64, bool)>;

fn seen(session: &mut Session, key: &[u8]) -> Seen {
    let guard = session.pin();
    let store = guard.store();
    let item = store.propose_near(store.hash(key)).and_then(|loc| guard.verify(loc, key))?;
    Some((item.value().to_vec(), item.flags(), item.expiry(), item.cas(), item.is_won()))
}

impl World {
    fn new(memory_bytes: usize) -> Self {
        let (store, filter) = (store(memory_bytes), Arc::new(Filter::new(1 << 10)));
        store.feed_replicas([Arc::new(Feed::filtered(1 << 16, Some(Arc::clone(&filter))))]);
        let session = store.session().unwrap();
        let watcher = Rc::new(RefCell::new(store.session().unwrap()));
        Self { store, filter, session, watcher }
    }

    /// `change` changes this key: the word is raised first, and nothing can be seen until then.
    fn changes(&mut self, what: &str, key: &'static [u8], change: impl FnOnce(&mut Session)) {
        let (watcher, filter) = (Rc::clone(&self.watcher), Arc::clone(&self.filter));
        let (before, stamp) = (seen(&mut watcher.borrow_mut(), key), filter.stamp());
        let (hash, times) = (self.store.hash(key), Rc::new(Cell::new(0)));
        assert_eq!(filter.accepts(signature(hash.0), stamp), Ok(()), "{what}");
        let (count, name) = (Rc::clone(&times), what.to_owned());
        let hook: Hook = Box::new(move |notified| {
            if notified == hash && count.replace(count.get() + 1) == 0 {
                let word = filter.accepts(signature(hash.0), stamp);
                assert_eq!(word, Err(Stale::Changed), "{name}");
                assert_eq!(seen(&mut watcher.borrow_mut(), key), before, "{name}: seen too early");
            }
        });
        HOOK.set(Some(hook));
        change(&mut self.session);
        HOOK.set(None);
        assert!(times.get() > 0, "{what}: no notification");
        self.settle();
    }

    /// What an updater would do.
    fn settle(&self) {
        let before = self.filter.advance();
        self.filter.apply(before);
        if let Some(number) = self.filter.is_to_clear() {
            self.filter.clear(number);
        }
    }
}

#[test]
fn every_verb_notifies_before_it_shows() {
    let mut w = World::new(8 << 20);
    let key: &[u8] = b"key";
    let with = |mode| base::Store { mode, ..base::Store::set(b"key", 7, 0, b"1") };
    let arith = |initial| Arith {
        key: b"key",
        delta: 1,
        decrement: false,
        cas: None,
        initial,
        own_cas: None,
        exptime: None,
    };
    let fetch = Fetch {
        key: b"key",
        hash: None,
        touch: None,
        recache: None,
        create: None,
        own_cas: None,
        unnoticed: false,
        room: 100,
    };
    let look = |s: &mut Session, what: &Fetch<'_>| {
        verbs::fetch(s, what, &mut Supposed::default(), |_| true, |found| assert!(found.is_some()))
            .unwrap();
    };
    w.changes("a first set", key, |s| put(s, b"key", b"1", 0).unwrap());
    w.changes("set", key, |s| put(s, b"key", b"22", 0).unwrap());
    for mode in [StoreMode::Replace, StoreMode::Append, StoreMode::Prepend] {
        w.changes("replace, append, prepend", key, |s| assert!(set(s, &with(mode)).is_ok()));
    }
    let cas = seen(&mut w.session, key).unwrap().3;
    let what = base::Store { cas: Some(cas), ..with(StoreMode::Set) };
    w.changes("cas", key, |s| assert!(set(s, &what).is_ok()));
    w.changes("incr", key, |s| assert!(verbs::arith(s, None, &arith(None)).is_ok()));
    w.changes("touch", key, |s| {
        assert!(touch(&s.pin(), None, key, 100, |_| true).unwrap().is_some())
    });
    let expiry = w.store.clock().expiry(200);
    w.changes("mg with T", key, |s| look(s, &Fetch { touch: Some(expiry), ..fetch }));
    let recache = Some(Recache { before: expiry + 1, touched: false });
    w.changes("mg with R", key, |s| look(s, &Fetch { recache, ..fetch }));
    let stale = Tombstone { cas: None, exptime: None, stale: true, empty: None, own_cas: None };
    w.changes("md with I", key, |s| assert!(verbs::invalidate(s, None, key, &stale).is_ok()));
    let cas = seen(&mut w.session, key).unwrap().3;
    w.changes("md with C", key, |s| assert!(verbs::delete_if(s, None, key, cas).is_ok()));
    w.changes("mg with N", key, |s| look(s, &Fetch { create: Some(expiry), ..fetch }));
    w.changes("delete", key, |s| assert!(delete(s, key)));
    w.changes("incr that makes", key, |s| {
        assert!(verbs::arith(s, None, &arith(Some((5, 0)))).unwrap().created);
    });
    let too_large = vec![0; 2 << 20];
    w.changes("a set that fails", key, |s| assert!(put(s, b"key", &too_large, 0).is_err()));
    assert_eq!(seen(&mut w.session, key), None, "what was there went");
    w.changes("add", key, |s| assert!(set(s, &with(StoreMode::Add)).is_ok()));
}

#[test]
fn what_the_store_does_by_itself_notifies_before_it_shows() {
    let mut w = World::new(4 << 20);
    let key: &[u8] = b"key";
    w.changes("set", key, |s| put(s, b"key", b"v", 5).unwrap());
    w.store.clock().skip_ahead(5);
    let store = Arc::clone(&w.store);
    w.changes("the sweeper", key, |_| (0..500).for_each(|_| store.housekeep()));
    w.changes("set", key, |s| put(s, b"key", &[b'v'; 100], 0).unwrap());
    w.changes("eviction", key, |s| scan(s, "other", 0..60_000));
    assert_eq!(seen(&mut w.session, key), None);
}

#[test]
fn flushes_and_lost_hashes_reject_all() {
    let w = World::new(8 << 20);
    let flushes: [(&str, &dyn Fn()); 3] = [
        ("flush", &|| w.store.flush(0)),
        ("flush of a prefix", &|| w.store.flush_prefix(b"a").unwrap()),
        ("flush with a delay", &|| {
            w.store.flush(2);
            w.store.clock().skip_ahead(2);
            w.store.housekeep();
        }),
    ];
    for (what, flush) in flushes {
        let stamp = w.filter.stamp();
        assert_eq!(w.filter.accepts(1, stamp), Ok(()), "{what}");
        flush();
        assert_eq!(w.filter.accepts(1, stamp), Err(Stale::Cleared), "{what}");
        w.settle();
    }
    let (store, filter) = (store(8 << 20), Arc::new(Filter::new(1 << 10)));
    store.feed_replicas([Arc::new(Feed::filtered(1, Some(Arc::clone(&filter))))]);
    let (mut s, stamp) = (store.session().unwrap(), filter.stamp());
    put(&mut s, b"a", b"", 0).unwrap();
    assert_ne!(filter.accepts(1, stamp), Err(Stale::Cleared));
    put(&mut s, b"b", b"", 0).unwrap();
    assert_eq!(filter.accepts(1, stamp), Err(Stale::Cleared));
}

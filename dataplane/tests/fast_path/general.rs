//! The fast paths of stage 6 against the way that every command can take.

use crate::world::{Lines, World};
use crate::{CLIENT, datagram};
use dataplane::commands::{Ctx, execute, stats};
use dataplane::observe::{OpCounters, OpTotals, Server};
use dataplane::stages::fast_path::FastPathMode;
use driver_shim::TxCaps;
use memcache::Parsed;
use memcache::sink::Buffer;
use proptest::prelude::*;
use std::sync::Arc;
use store::{Session, Store};

/// The way that every command can take: parser, verb, encoder, for one datagram's text.
struct General {
    session: Session,
    server: Arc<Server>,
    ops: Arc<OpCounters>,
}

impl General {
    fn like(world: &World) -> Self {
        let store = Store::new(world.server.store.config().clone()).unwrap();
        let session = store.session().unwrap();
        let server = Arc::new(Server::new(store, "test".to_owned()));
        Self { session, ops: server.ops(), server }
    }

    fn of(world: &World) -> Self {
        let session = world.server.store.session().unwrap();
        let server = Arc::clone(&world.server);
        Self { session, ops: Arc::default(), server }
    }

    fn ask(&mut self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let dialect = self.server.dialects.of(text[0]);
        let parsed = dialect.parse(text, self.server.store.config().item_max_bytes);
        match &parsed {
            Parsed::Command { command, .. } | Parsed::Swallow { command, .. } => {
                let mut ctx = Ctx::new(&mut self.session, &self.ops, &self.server);
                execute(&mut ctx, command, &mut Buffer::new(&mut out, usize::MAX));
            }
            other => panic!("{:?}: {other:?}", String::from_utf8_lossy(text)),
        }
        out
    }

    /// Everything that is counted, but bytes, and what is shown of size classes and prefixes.
    fn counted(&mut self) -> Vec<String> {
        let totals = OpTotals { bytes_read: 0, bytes_written: 0, ..self.server.totals() };
        let mut rows = Lines(vec![format!("{totals:?}")]);
        let ops = OpCounters::default();
        let mut ctx = Ctx::new(&mut self.session, &ops, &self.server);
        for page in ["slabs", "items"] {
            stats::page(&mut ctx, Some(page.as_bytes()), &mut rows);
        }
        rows.0.retain(|line| !line.contains(":age"));
        let prefixes = String::from_utf8(self.ask(b"stats detail dump\r\n")).unwrap();
        let mut prefixes: Vec<&str> = prefixes.lines().collect();
        prefixes.sort_unstable();
        rows.0.extend(prefixes.into_iter().map(str::to_owned));
        rows.0
    }
}

/// A `get` or `set` for `execute`'s fast paths, or a command that stirs what they find.
fn one_command() -> impl Strategy<Value = Vec<u8>> {
    let key = || (0..6_u8, 1..4_u8).prop_map(|(k, n)| format!("p{n}:key{k}"));
    let value = || prop_oneof![Just(0_usize), 1..40_usize, 400..600_usize];
    let set =
        (key(), 0..3_u32, prop::sample::select(vec!["0", "-1", "1000"]), value(), any::<bool>());
    let set = set.prop_map(|(key, flags, exptime, len, noreply)| {
        let noreply = if noreply { " noreply" } else { "" };
        format!("set {key} {flags} {exptime} {len}{noreply}\r\n{}\r\n", "v".repeat(len))
    });
    prop_oneof![
        5 => key().prop_map(|key| format!("get {key}\r\n")),
        1 => (key(), key()).prop_map(|(a, b)| format!("get {a} {b} none\r\n")),
        1 => key().prop_map(|key| format!("gets {key}\r\n")),
        1 => Just(format!("get {}\r\n", "k".repeat(251))),
        5 => set,
        1 => Just("set p1:key1 0 0 2\r\nxyz\r\n".to_owned()),
        1 => Just(format!("set {} 0 0 1\r\nx\r\n", "k".repeat(251))),
        1 => key().prop_map(|key| format!("delete {key}\r\n")),
        1 => key().prop_map(|key| format!("add {key} 0 0 1\r\n7\r\n")),
        1 => key().prop_map(|key| format!("incr {key} 1\r\n")),
        1 => key().prop_map(|key| format!("touch {key} 100\r\n")),
    ]
    .prop_map(String::into_bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// A `get` or a `set` by `execute`'s fast path is answered, and counted, as by the general way.
    #[test]
    fn one_command_is_answered_and_counted_as_by_the_general_way(
        texts in prop::collection::vec(one_command(), 1..60),
        detail in any::<bool>(),
    ) {
        let mut world = World::new(FastPathMode::Off, TxCaps { ip: true, udp: true });
        let mut general = General::like(&world);
        let mut same = General::of(&world);
        if detail {
            general.ask(b"stats detail on\r\n");
            same.ask(b"stats detail on\r\n");
        }
        for text in &texts {
            let said = general.ask(text);
            let replies = world.ask(&[datagram(CLIENT, text)]);
            // Behind 42 bytes of headers and 8 of the memcached frame; `ask` adds what `tx` says.
            let got = replies.first().map(|reply| &reply[50..]).unwrap_or_default();
            prop_assert!(replies.len() <= 1 && got.starts_with(&said), "{:?}: {:?}",
                String::from_utf8_lossy(text), String::from_utf8_lossy(got));
            prop_assert_eq!(replies.is_empty(), said.is_empty());
        }
        prop_assert_eq!(same.counted(), general.counted());
        let fast = world.counters.fast.get() + world.counters.slow.get();
        prop_assert_eq!(fast, texts.len() as u64);
    }
}

//! Requests of many connections that are answered as a group: in whatever pieces they come, each
//! connection gets what it would get alone.

use crate::stream_client::{Client, ip};
use crate::world::{SERVER4, World};
use proptest::prelude::*;
use std::collections::HashMap;

/// A request, about one of its connection's own keys.
#[derive(Debug, Clone)]
enum Ask {
    Get(u8),
    GetTwo(u8, u8),
    Set(u8, usize),
    SetQuietly(u8, usize),
    Delete(u8),
    Meta(u8),
    Nonsense,
}

fn ask() -> impl Strategy<Value = Ask> {
    let (key, len) = (0_u8..4, prop_oneof![8 => 0_usize..200, 1 => 1400_usize..5000]);
    prop_oneof![
        8 => key.clone().prop_map(Ask::Get),
        2 => (key.clone(), key.clone()).prop_map(|(a, b)| Ask::GetTwo(a, b)),
        6 => (key.clone(), len.clone()).prop_map(|(key, len)| Ask::Set(key, len)),
        1 => (key.clone(), len).prop_map(|(key, len)| Ask::SetQuietly(key, len)),
        1 => key.clone().prop_map(Ask::Delete),
        1 => key.prop_map(Ask::Meta),
        1 => Just(Ask::Nonsense),
    ]
}

/// The bytes that a connection sends and those that it is to get.
fn talk(connection: usize, asks: &[Ask]) -> (Vec<u8>, Vec<u8>) {
    let (mut sent, mut want) = (String::new(), String::new());
    let mut items: HashMap<u8, String> = HashMap::new();
    let name = |key: u8| format!("connection{connection}key{key}");
    let hit = |key: u8, items: &HashMap<u8, String>| {
        let line = |value: &String| format!("VALUE {} 7 {}\r\n{value}\r\n", name(key), value.len());
        items.get(&key).map_or_else(String::new, line)
    };
    for (n, ask) in asks.iter().enumerate() {
        match *ask {
            Ask::Get(key) => {
                sent += &format!("get {}\r\n", name(key));
                want += &(hit(key, &items) + "END\r\n");
            }
            Ask::GetTwo(a, b) => {
                sent += &format!("get {} {}\r\n", name(a), name(b));
                want += &(hit(a, &items) + &hit(b, &items) + "END\r\n");
            }
            Ask::Set(key, len) | Ask::SetQuietly(key, len) => {
                let value: String = n.to_string().chars().cycle().take(len).collect();
                let quiet = if matches!(ask, Ask::Set(..)) { "" } else { " noreply" };
                sent += &format!("set {} 7 0 {len}{quiet}\r\n{value}\r\n", name(key));
                want += if quiet.is_empty() { "STORED\r\n" } else { "" };
                items.insert(key, value);
            }
            Ask::Delete(key) => {
                sent += &format!("delete {}\r\n", name(key));
                let was = items.remove(&key).is_some();
                want += if was { "DELETED\r\n" } else { "NOT_FOUND\r\n" };
            }
            Ask::Meta(key) => {
                sent += &format!("mg {} v\r\n", name(key));
                let va = |value: &String| format!("VA {}\r\n{value}\r\n", value.len());
                want += &items.get(&key).map_or_else(|| "EN\r\n".to_owned(), va);
            }
            Ask::Nonsense => {
                sent += "nonsense\r\n";
                want += "ERROR\r\n";
            }
        }
    }
    // The last is answered: then all before it have been carried out, quiet ones as well.
    sent += "mn\r\n";
    want += "MN\r\n";
    (sent.into_bytes(), want.into_bytes())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn each_connection_gets_what_it_would_get_alone(
        all in prop::collection::vec(prop::collection::vec(ask(), 0..60), 1..9),
        cuts in prop::collection::vec((0_usize..9, prop_oneof![0_usize..40, 0_usize..2000]), 0..80),
    ) {
        let mut w = World::streaming(16, |q, _| q);
        let mut client = Client::new();
        let mut talks: Vec<_> = all.iter().enumerate().map(|(n, asks)| {
            let (sent, want) = talk(n, asks);
            (client.connect(ip(SERVER4)), sent, want, Vec::new())
        }).collect();
        let open = |c: &mut Client, talks: &[(_, Vec<u8>, Vec<u8>, Vec<u8>)]| {
            talks.iter().all(|(socket, ..)| c.socket(*socket).may_send())
        };
        client.until(&mut w, |client| open(client, &talks));
        let mut cuts = cuts.into_iter();
        client.until(&mut w, |client| {
            // Pieces for some connections, all in one burst; the rest of all when no more are cut.
            let mut pieces: Vec<_> = cuts.by_ref().take(4).collect();
            if pieces.is_empty() {
                pieces = (0..talks.len()).map(|n| (n, usize::MAX)).collect();
            }
            for (n, len) in pieces {
                let of = n % talks.len();
                let (socket, sent, ..) = &mut talks[of];
                let piece = &sent[..len.min(sent.len())];
                let n = client.socket(*socket).send_slice(piece).unwrap();
                sent.drain(..n);
            }
            for (socket, _, _, got) in &mut talks {
                let socket = client.socket(*socket);
                while socket.can_recv() {
                    socket.recv(|bytes| (bytes.len(), got.extend_from_slice(bytes))).unwrap();
                }
            }
            talks.iter().all(|(_, sent, want, got)| sent.is_empty() && got.len() >= want.len())
        });
        for (n, (_, _, want, got)) in talks.iter().enumerate() {
            prop_assert_eq!(String::from_utf8_lossy(got), String::from_utf8_lossy(want), "{}", n);
        }
        let keys = |ask: &Ask| match ask {
            Ask::Get(_) => 1,
            Ask::GetTwo(..) => 2,
            _ => 0,
        };
        let gets: u64 = all.iter().flatten().map(keys).sum();
        let is_set = |ask: &&Ask| matches!(ask, Ask::Set(..) | Ask::SetQuietly(..));
        let sets = all.iter().flatten().filter(is_set).count();
        let totals = w.server.totals();
        // A meta get is one too.
        let metas = all.iter().flatten().filter(|ask| matches!(ask, Ask::Meta(_))).count();
        prop_assert_eq!(totals.cmd_get, gets + metas as u64);
        prop_assert_eq!(totals.get_hits + totals.get_misses, totals.cmd_get);
        prop_assert_eq!(totals.cmd_set, sets as u64);
        w.end();
    }
}

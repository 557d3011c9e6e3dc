//! The classic client: `memcache::Client`, over each transport in each protocol.

use std::collections::HashMap;

use memcache::{Client, CommandError, MemcacheError};

use crate::{Battery, Checked, REPLY, eventually, holds, new_key, same};

/// Almost the default limit of an item; over UDP it comes in many datagrams.
const LARGE_BYTES: usize = 1_000_000;
/// What is read over UDP: some fifty datagrams, which fit any socket's buffer.
const LARGE_OVER_UDP_BYTES: usize = 64 << 10;
const BEYOND_LIMIT_BYTES: usize = (1 << 20) + 1;

/// Every check, each way that the crate has: what its ASCII sends over UDP never leaves.
pub fn checks(battery: &mut Battery) {
    for (transport, protocol) in [("tcp", "ascii"), ("tcp", "binary"), ("udp", "binary")] {
        one_way(battery, transport, protocol);
    }
}

fn one_way(battery: &mut Battery, transport: &str, protocol: &str) {
    let name = |what: &str| format!("memcache crate, {transport}, {protocol}: {what}");
    let (udp, binary) = (transport == "udp", protocol == "binary");
    let connect = |scheme: &str| {
        Client::builder()
            .add_server(format!("{scheme}://{}?protocol={protocol}", battery.server))?
            .with_connection_timeout(REPLY)
            .with_read_timeout(REPLY)
            .with_write_timeout(REPLY)
            .build()
    };
    let scheme = if udp { "memcache+udp" } else { "memcache" };
    let clients = connect(scheme).and_then(|client| Ok((client, connect("memcache")?)));
    let (client, over_tcp) = match clients {
        Ok(clients) => clients,
        Err(why) => return battery.check(&name("connect"), || Err(why.into())),
    };
    let client = &client;
    battery.check(&name("set, get, delete"), || set_get_delete(client));
    battery.check(&name("add, replace, append, prepend"), || storage(client));
    battery.check(&name("increment and decrement"), || arithmetic(client, binary));
    battery.check(&name("touch, and expiry"), || touch(client));
    battery.check(&name("version"), || version(client));
    // In ASCII the crate reads the first of the lines, and takes the others for the next answers.
    if binary {
        battery.check(&name("stats"), || stats(client));
    }
    // Over UDP the crate never sends its binary gets: it reads without having flushed.
    if !(udp && binary) {
        battery.check(&name("gets of many"), || gets(client));
        battery.check(&name("cas"), || cas(client));
    }
    if udp {
        battery.check(&name("a reply of many datagrams"), || many_datagrams(client, &over_tcp));
    } else {
        battery.check(&name("large values"), || large_values(client));
        battery.check(&name("flush, at once and after a delay"), || flush(client));
    }
}

fn get(client: &Client, key: &str) -> Result<Option<String>, MemcacheError> {
    client.get(key)
}

/// Fails unless the server gave this number.
fn counts(got: Result<u64, MemcacheError>, wanted: u64, what: &str) -> Checked {
    same(got.map_err(|why| format!("{what}: {why}"))?, wanted, what)
}

/// Fails unless the server said that there is no such key.
fn missing(got: Result<u64, MemcacheError>, what: &str) -> Checked {
    match got {
        Err(MemcacheError::CommandError(CommandError::KeyNotFound)) => Ok(()),
        other => Err(format!("{what}: {other:?} instead of no such key").into()),
    }
}

fn set_get_delete(client: &Client) -> Checked {
    let key = new_key();
    same(get(client, &key)?, None, "before")?;
    for value in ["text", "", "line\r\nEND\r\n"] {
        client.set(&key, value, 0)?;
        same(get(client, &key)?.as_deref(), Some(value), "get")?;
    }
    client.set(&key, &[0u8, 255, 13, 10][..], 0)?;
    same(client.get::<Vec<u8>>(&key)?, Some(vec![0, 255, 13, 10]), "bytes")?;
    client.set(&key, 42, 0)?;
    same(client.get::<i32>(&key)?, Some(42), "a number")?;
    let long = format!("{key:k<250}");
    client.set(&long, "long", 0)?;
    same(get(client, &long)?.as_deref(), Some("long"), "a key of 250 bytes")?;
    same(client.delete(&key)?, true, "delete")?;
    same(client.delete(&key)?, false, "delete again")?;
    same(get(client, &key)?, None, "after")
}

fn storage(client: &Client) -> Checked {
    let key = new_key();
    // What these three give, and add of what is there, is no error everywhere: what is stored counts.
    let _ = client.replace(&key, "0", 0);
    let _ = client.append(&key, "0");
    let _ = client.prepend(&key, "0");
    same(get(client, &key)?, None, "replace, append and prepend of nothing")?;
    client.add(&key, "1", 0)?;
    let _ = client.add(&key, "2", 0);
    same(get(client, &key)?.as_deref(), Some("1"), "add again")?;
    client.replace(&key, "3", 0)?;
    client.append(&key, "4")?;
    client.prepend(&key, "2")?;
    same(get(client, &key)?.as_deref(), Some("234"), "all together")
}

fn cas(client: &Client) -> Checked {
    let key = new_key();
    client.set(&key, "1", 0)?;
    let got: HashMap<String, (Vec<u8>, u32, Option<u64>)> = client.gets(&[&key])?;
    let (value, _, id) = got.get(&key).ok_or("no value")?;
    let id = id.ok_or("no CAS id")?;
    same(value.as_slice(), b"1", "gets")?;
    same(client.cas(&key, "2", 0, id)?, true, "cas")?;
    same(client.cas(&key, "3", 0, id)?, false, "cas with an old id")?;
    same(client.cas(&new_key(), "3", 0, id)?, false, "cas of nothing")?;
    same(get(client, &key)?.as_deref(), Some("2"), "get")
}

fn arithmetic(client: &Client, binary: bool) -> Checked {
    let key = new_key();
    if binary {
        // Here the crate asks for an initial value, 0.
        counts(client.increment(&key, 1), 0, "increment of nothing")?;
        counts(client.decrement(&new_key(), 1), 0, "decrement of nothing")?;
    } else {
        missing(client.increment(&key, 1), "increment of nothing")?;
        missing(client.decrement(&key, 1), "decrement of nothing")?;
    }
    client.set(&key, "20", 0)?;
    counts(client.increment(&key, 11), 31, "increment")?;
    counts(client.decrement(&key, 1), 30, "decrement")?;
    counts(client.decrement(&key, 100), 0, "below zero")?;
    client.set(&key, u64::MAX.to_string(), 0)?;
    counts(client.increment(&key, 2), 1, "beyond 64 bits")?;
    client.set(&key, "no number", 0)?;
    holds(client.increment(&key, 1).is_err(), "increment of a text")
}

fn touch(client: &Client) -> Checked {
    let (key, other) = (new_key(), new_key());
    same(client.touch(&key, 10)?, false, "touch of nothing")?;
    client.set(&key, "x", 3600)?;
    client.set(&other, "x", 1)?;
    same(client.touch(&other, 3600)?, true, "touch")?;
    same(client.touch(&key, 1)?, true, "touch")?;
    eventually("a touched key does not expire", || matches!(get(client, &key), Ok(None)))?;
    same(get(client, &other)?.as_deref(), Some("x"), "a key touched to last longer")
}

fn version(client: &Client) -> Checked {
    let versions = client.version()?;
    holds(versions.iter().all(|(_, version)| version.starts_with("1.")), "no version number")
}

fn stats(client: &Client) -> Checked {
    for (_, stats) in client.stats()? {
        let items = stats.get("curr_items").ok_or("no curr_items")?;
        holds(items.parse::<u64>().is_ok(), "curr_items is no number")?;
    }
    Ok(())
}

fn gets(client: &Client) -> Checked {
    let keys: Vec<String> = (0..50).map(|_| new_key()).collect();
    for key in &keys {
        client.set(key, format!("value of {key}"), 0)?;
    }
    let missing = new_key();
    let asked: Vec<&str> = keys.iter().chain([&missing]).map(String::as_str).collect();
    let got: HashMap<String, String> = client.gets(&asked)?;
    same(got.len(), keys.len(), "how many were found")?;
    for key in &keys {
        same(got.get(key), Some(&format!("value of {key}")), key)?;
    }
    Ok(())
}

fn large_values(client: &Client) -> Checked {
    let key = new_key();
    client.set(&key, "x".repeat(LARGE_BYTES), 0)?;
    same(get(client, &key)?.map(|value| value.len()), Some(LARGE_BYTES), "get")?;
    holds(client.set(&key, "x".repeat(BEYOND_LIMIT_BYTES), 0).is_err(), "stored beyond the limit")
}

fn many_datagrams(client: &Client, over_tcp: &Client) -> Checked {
    let key = new_key();
    let value: String = (0..)
        .map(|n: u32| n.to_string())
        .scan(0, |length, part| {
            *length += part.len();
            (*length <= LARGE_OVER_UDP_BYTES).then_some(part)
        })
        .collect();
    over_tcp.set(&key, value.as_str(), 0)?;
    same(get(client, &key)?, Some(value), "get")
}

fn flush(client: &Client) -> Checked {
    let key = new_key();
    client.set(&key, "x", 0)?;
    client.flush()?;
    same(get(client, &key)?, None, "after a flush")?;
    client.set(&key, "y", 0)?;
    client.flush_with_delay(1)?;
    eventually("a delayed flush does nothing", || matches!(get(client, &key), Ok(None)))?;
    // What is stored within the second of the flush may go with it.
    eventually("nothing stays after a delayed flush", || {
        client.set(&key, "z", 0).is_ok() && matches!(get(client, &key), Ok(Some(_)))
    })
}

//! The meta clients: `memcache::exp::MetaClient`, which maps each flag, and `memcache::exp::Memcache`,
//! which does leases and CAS loops with them. TCP only, as the crate has it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::Duration;

use memcache::exp::{Delete, Get, GetStatus, Memcache, Meta, MetaClient, MutationStatus, Set, Ttl};

use crate::{Battery, Checked, REPLY, eventually, holds, new_key, same};

const MINUTE: Ttl = Ttl::secs(60);

/// Every check of both clients.
pub fn checks(battery: &mut Battery) {
    let server = battery.server.clone();
    let client = MetaClient::builder()
        .connect_timeout(Some(REPLY))
        .io_timeout(Some(REPLY))
        .connect(server.as_str());
    let client = match client {
        Ok(client) => client,
        Err(why) => return battery.check("memcache crate, meta: connect", || Err(why.into())),
    };
    let cache = match Memcache::builder()
        .connect_timeout(REPLY)
        .timeout(REPLY)
        .connect([server.as_str()])
    {
        Ok(cache) => cache,
        Err(why) => return battery.check("memcache crate, Memcache: connect", || Err(why.into())),
    };
    for (name, check) in [
        ("mn, ms, mg, md", basics as fn(&MetaClient) -> Checked),
        ("modes of ms", modes),
        ("CAS ids", cas),
        ("ma", arithmetic),
        ("what mg tells of an item", item),
        ("keys of any bytes", binary_keys),
        ("leases: vivify, stale, recache", leases),
        ("me", debug),
        ("batches", batches),
    ] {
        battery.check(&format!("memcache crate, meta: {name}"), || check(&client));
    }
    for (name, check) in [
        ("get, set, add, replace, delete", verbs as fn(&Memcache) -> Checked),
        ("counters and fragments", counters),
        ("touch and inspect", touch),
        ("many keys", many),
        ("update and take", update),
        ("fetch and invalidate", fetch),
    ] {
        battery.check(&format!("memcache crate, Memcache: {name}"), || check(&cache));
    }
}

fn basics(client: &MetaClient) -> Checked {
    let key = new_key();
    client.noop()?;
    same(client.get(&key).send()?.status, GetStatus::Miss, "before")?;
    holds(client.set(&key, "value").client_flags(7).send()?.applied(), "was not stored")?;
    let got = client.get(&key).send()?;
    same(got.value.as_deref(), Some(&b"value"[..]), "value")?;
    same(got.client_flags, Some(7), "flags")?;
    holds(client.delete(&key).send()?.applied(), "was not deleted")?;
    same(client.delete(&key).send()?.status, MutationStatus::NotFound, "deleted twice")?;
    same(client.get(&key).send()?.status, GetStatus::Miss, "after")
}

fn modes(client: &MetaClient) -> Checked {
    let key = new_key();
    same(
        client.set(&key, "0").replace().send()?.status,
        MutationStatus::NotFound,
        "replace of nothing",
    )?;
    same(
        client.set(&key, "0").append().send()?.status,
        MutationStatus::NotFound,
        "append to nothing",
    )?;
    holds(client.set(&key, "1").add().send()?.applied(), "was not added")?;
    same(client.set(&key, "2").add().send()?.status, MutationStatus::AlreadyExists, "add again")?;
    holds(client.set(&key, "3").replace().send()?.applied(), "was not replaced")?;
    holds(client.set(&key, "4").append().send()?.applied(), "was not appended")?;
    holds(client.set(&key, "2").prepend().send()?.applied(), "was not prepended")?;
    same(client.get(&key).send()?.value.as_deref(), Some(&b"234"[..]), "all together")
}

fn cas(client: &MetaClient) -> Checked {
    let key = new_key();
    let first = client.set(&key, "1").return_cas().send()?.cas.ok_or("no CAS id")?;
    holds(client.set(&key, "2").compare_cas(first).send()?.applied(), "was not stored")?;
    let stale = client.set(&key, "3").compare_cas(first).send()?;
    same(stale.status, MutationStatus::CasMismatch, "an old id")?;
    let missing = client.set(new_key(), "3").compare_cas(first).send()?;
    same(missing.status, MutationStatus::NotFound, "cas of nothing")?;
    let got = client.get(&key).meta(Meta::NONE.cas()).send()?;
    same(got.value.as_deref(), Some(&b"2"[..]), "value")?;
    let second = got.item.cas.ok_or("no CAS id")?;
    same(
        client.delete(&key).compare_cas(first).send()?.status,
        MutationStatus::CasMismatch,
        "delete with an old id",
    )?;
    holds(client.delete(&key).compare_cas(second).send()?.applied(), "was not deleted")
}

fn arithmetic(client: &MetaClient) -> Checked {
    let key = new_key();
    same(client.increment(&key).send()?.status, MutationStatus::NotFound, "increment of nothing")?;
    same(client.increment(&key).initial(40, 60).send()?.value, Some(40), "an initial value")?;
    let counted = client.increment(&key).delta(2).return_cas().return_ttl().send()?;
    same(counted.value, Some(42), "increment")?;
    holds(counted.item.cas.is_some(), "no CAS id")?;
    holds(
        counted.item.ttl.is_some_and(|ttl| (1..=60).contains(&ttl)),
        "no TTL of the initial value",
    )?;
    same(client.decrement(&key).delta(100).send()?.value, Some(0), "below zero")?;
    let id = client.get(&key).meta(Meta::NONE.cas()).send()?.item.cas.ok_or("no CAS id")?;
    let stale = client.increment(&key).compare_cas(id + 1_000_000).send()?;
    same(stale.status, MutationStatus::CasMismatch, "another id")
}

fn item(client: &MetaClient) -> Checked {
    let key = new_key();
    client.set(&key, "value").ttl(MINUTE).send()?;
    let fresh = client.get(&key).meta(Meta::ALL).without_value().no_lru_bump().send()?;
    same(
        (fresh.item.size, fresh.item.hit_before),
        (Some(5), Some(false)),
        "size, and not read before",
    )?;
    client.get(&key).send()?;
    let read = client.get(&key).meta(Meta::ALL).touch(Ttl::secs(1000)).send()?;
    same(read.item.hit_before, Some(true), "read before")?;
    holds(
        read.item.cas.is_some() && read.item.last_access.is_some(),
        "no CAS id, or no time of the last access",
    )?;
    // `t` shows what was before a `T` that comes after it.
    let left = client.get(&key).meta(Meta::NONE.ttl()).send()?.item.ttl;
    holds(left.is_some_and(|ttl| ttl > 60), "not the TTL that a get gave")?;
    let forever = new_key();
    client.set(&forever, "x").send()?;
    same(
        client.get(&forever).meta(Meta::NONE.ttl()).send()?.item.ttl,
        Some(-1),
        "the TTL of what stays",
    )
}

fn binary_keys(client: &MetaClient) -> Checked {
    let mut key = format!("{} with spaces\r\n\x01", new_key()).into_bytes();
    key.extend([0, 255]);
    holds(client.set(&key, "x").send()?.applied(), "was not stored")?;
    same(client.get(&key).send()?.value.as_deref(), Some(&b"x"[..]), "get")?;
    holds(client.delete(&key).send()?.applied(), "was not deleted")
}

fn leases(client: &MetaClient) -> Checked {
    let key = new_key();
    let first = client.get(&key).lease_ttl(60).send()?;
    same((first.status, first.won_lease()), (GetStatus::Miss, true), "the first to miss")?;
    let second = client.get(&key).lease_ttl(60).send()?;
    same((second.status, second.lease_busy()), (GetStatus::Miss, true), "the second to miss")?;
    let filled =
        client.set(&key, "1").ttl(MINUTE).compare_cas(first.item.cas.ok_or("no CAS id")?).send()?;
    holds(filled.applied(), "the lease's owner could not store")?;

    let early = client.get(&key).lease_ttl(60).refresh_before(120).send()?;
    same(
        (early.hit(), early.won_lease()),
        (true, true),
        "the first to see that little time is left",
    )?;
    let other = client.get(&key).lease_ttl(60).refresh_before(120).send()?;
    same((other.hit(), other.won_lease()), (true, false), "the next")?;

    client.set(&key, "2").ttl(MINUTE).send()?;
    holds(
        client.delete(&key).invalidate().stale_for(Ttl::secs(30)).send()?.applied(),
        "was not invalidated",
    )?;
    let winner = client.get(&key).meta(Meta::NONE.cas()).send()?;
    same(
        (winner.value.as_deref(), winner.is_stale(), winner.won_lease()),
        (Some(&b"2"[..]), true, true),
        "a stale item",
    )?;
    let other = client.get(&key).send()?;
    same((other.is_stale(), other.lease_busy()), (true, true), "the next to see it")?;
    let filled = client.set(&key, "3").compare_cas(winner.item.cas.ok_or("no CAS id")?).send()?;
    holds(filled.applied(), "the winner could not store")?;
    let fresh = client.get(&key).send()?;
    same((fresh.value.as_deref(), fresh.is_stale()), (Some(&b"3"[..]), false), "a fresh item again")
}

fn debug(client: &MetaClient) -> Checked {
    let key = new_key();
    same(client.debug(&key)?, None, "before")?;
    client.set(&key, "x").send()?;
    let shown = client.debug(&key)?.ok_or("nothing")?;
    for field in ["exp", "la", "cas", "fetch", "cls", "size"] {
        holds(shown.contains_key(field), &format!("no {field} in {shown:?}"))?;
    }
    Ok(())
}

fn batches(client: &MetaClient) -> Checked {
    let (key, missing) = (new_key(), new_key());
    let results = client.run_batch(vec![
        Set::new(&key, "1").ttl(MINUTE).into(),
        Get::new(&key).into(),
        Get::new(&missing).into(),
        Delete::new(&missing).into(),
    ])?;
    let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let [set, got, missed, deleted] = results.as_slice() else {
        return Err(format!("{} results", results.len()).into());
    };
    holds(set.as_mutation().is_some_and(|set| set.applied()), "was not stored")?;
    same(got.as_get().and_then(|got| got.value.as_deref()), Some(&b"1"[..]), "get")?;
    same(missed.as_get().map(|missed| missed.status), Some(GetStatus::Miss), "a miss")?;
    same(
        deleted.as_mutation().map(|deleted| deleted.status),
        Some(MutationStatus::NotFound),
        "delete",
    )?;

    let keys: Vec<String> = (0..500).map(|_| new_key()).collect();
    let stored = client.run_many(keys.iter().map(|key| Set::new(key, key)))?;
    holds(
        stored.iter().all(|set| set.as_ref().is_ok_and(|set| set.applied())),
        "not all were stored",
    )?;
    let got = client.run_many(keys.iter().map(Get::new))?;
    for (key, got) in keys.iter().zip(got) {
        same(got?.value.as_deref(), Some(key.as_bytes()), key)?;
    }
    Ok(())
}

fn text(cache: &Memcache, key: &str) -> Result<Option<String>, memcache::exp::Error> {
    cache.get(key)
}

fn verbs(cache: &Memcache) -> Checked {
    let key = new_key();
    same(text(cache, &key)?, None, "before")?;
    same(cache.replace(&key, "0", MINUTE)?, false, "replace of nothing")?;
    same(cache.add(&key, "1", MINUTE)?, true, "add")?;
    same(cache.add(&key, "2", MINUTE)?, false, "add again")?;
    same(cache.replace(&key, "3", MINUTE)?, true, "replace")?;
    same(text(cache, &key)?.as_deref(), Some("3"), "get")?;
    cache.set(&key, 42i64, MINUTE)?;
    same(cache.get::<i64>(&key)?, Some(42), "a number")?;
    cache.delete(&key)?;
    same(text(cache, &key)?, None, "after")
}

fn counters(cache: &Memcache) -> Checked {
    let key = new_key();
    same(cache.incr(&key, 5, MINUTE)?, 5, "the first increment")?;
    same(cache.incr(&key, 3, MINUTE)?, 8, "the next")?;
    same(cache.decr(&key, 10, MINUTE)?, 0, "below zero")?;
    let key = new_key();
    cache.set(&key, "middle", MINUTE)?;
    cache.append(&key, b" end", MINUTE)?;
    cache.prepend(&key, b"start ", MINUTE)?;
    same(text(cache, &key)?.as_deref(), Some("start middle end"), "append and prepend")
}

fn touch(cache: &Memcache) -> Checked {
    let (key, short) = (new_key(), new_key());
    holds(cache.inspect(&key)?.is_none(), "there before it was stored")?;
    cache.set(&key, "abc", Ttl::secs(30))?;
    let info = cache.inspect(&key)?.ok_or("nothing to inspect")?;
    same(info.size, 3, "size")?;
    holds(info.ttl.is_some_and(|ttl| ttl <= Duration::from_secs(30)), "not the TTL that was set")?;
    cache.touch(&key, Ttl::secs(600))?;
    let info = cache.inspect(&key)?.ok_or("nothing to inspect")?;
    holds(
        info.ttl.is_some_and(|ttl| ttl > Duration::from_secs(500)),
        "not the TTL that touch gave",
    )?;
    cache.set(&short, "x", MINUTE)?;
    same(
        cache.get_and_touch::<String>(&short, Ttl::secs(1))?.as_deref(),
        Some("x"),
        "get_and_touch",
    )?;
    eventually("what was touched does not expire", || matches!(text(cache, &short), Ok(None)))
}

fn many(cache: &Memcache) -> Checked {
    let pairs: Vec<(String, String)> =
        (0..200).map(|_| new_key()).map(|key| (key.clone(), key)).collect();
    let keys: Vec<String> = pairs.iter().map(|(key, _)| key.clone()).collect();
    cache.set_many(pairs.clone(), MINUTE)?;
    let found: HashMap<String, String> = cache.get_many(keys.iter().cloned().chain([new_key()]))?;
    same(found, pairs.into_iter().collect(), "get_many")?;
    cache.delete_many(&keys)?;
    let found: HashMap<String, String> = cache.get_many(keys)?;
    holds(found.is_empty(), "there after delete_many")
}

fn update(cache: &Memcache) -> Checked {
    let key = new_key();
    for wanted in 1..=3u64 {
        let got = cache.update(&key, MINUTE, |old: Option<u64>| old.unwrap_or(0) + 1)?;
        same(got, wanted, "update")?;
    }
    same(cache.take::<u64>(&key)?, Some(3), "take")?;
    same(cache.take::<u64>(&key)?, None, "take again")
}

fn fetch(cache: &Memcache) -> Checked {
    let key = new_key();
    let mut calls = 0;
    let mut fetched = |value: &str| {
        let got: String = cache.fetch(&key, MINUTE, || {
            calls += 1;
            Ok::<_, Infallible>(value.to_owned())
        })?;
        Ok::<_, memcache::exp::Error>((got, calls))
    };
    same(fetched("1")?, ("1".to_owned(), 1), "the first fetch makes it")?;
    same(fetched("2")?, ("1".to_owned(), 1), "the next finds it")?;
    cache.invalidate(&key, Duration::from_secs(30))?;
    same(fetched("3")?, ("3".to_owned(), 2), "the first after an invalidation makes it anew")?;
    same(fetched("4")?, ("3".to_owned(), 2), "the next finds that")
}

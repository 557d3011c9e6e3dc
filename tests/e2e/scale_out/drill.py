#!/usr/bin/env python3
"""Three appliances behind each way of docs/scale-out.md: one is lost and comes back, a fourth comes.

    drill.py NAMESPACE...      of four appliances; run beside them, by test_scale_out.py

A value is made from its key and a version, so that an old one is told from the right one. Where keys
are is found out by asking each appliance. Prints `ok NAME` or `FAILED NAME: why`.
"""

import subprocess
import sys
import time

from pool import Pool, memc, wait_until
from through import WAYS, Libmemcached, Nutcracker, Unavailable, definitions

KEYS = [b"user:%d:profile" % i for i in range(1000)]
FEW = KEYS[:200]
SHARE_OFF_MAX = 0.05
SETTLED_S = 120.0
"""How long clients may take to find out who is there: their timeouts are two seconds at most."""

SHORT_S = 6
"""How long an item lives that is to expire during the drill."""

failures = 0


def verdict(name, truth, why=""):
    """One line for one claim."""
    global failures
    failures += not truth
    print(f"ok      {name}" if truth else f"FAILED  {name}: {why}", flush=True)


def value(key, version):
    """What a version of a key holds."""
    return b"%s is at version %d" % (key, version)


class Application:
    """What users of a cache do, over one way: look, and on a miss fetch and set."""

    def __init__(self, way):
        self.way = way
        self.versions = dict.fromkeys(KEYS, 1)
        self.old = []
        self.wrong = []

    def write(self, keys, version, seconds=0):
        """Sets the keys to a version; tries again what fails. Returns whether all were stored."""
        left = list(keys)

        def again():
            left[:] = [k for k in left if not self.way.set(k, value(k, version), seconds)]
            return not left

        self.versions.update(dict.fromkeys(keys, version))
        return wait_until(again, SETTLED_S)

    def read(self, keys, seconds=0):
        """One round. Returns the keys that were not there or could not be asked for."""
        missed = []
        for key in keys:
            try:
                got = self.way.get(key)
            except Unavailable:
                missed.append(key)
                continue
            if got is None:
                missed.append(key)
                self.way.set(key, value(key, self.versions[key]), seconds)
            elif got in [value(key, v) for v in range(1, self.versions[key])]:
                self.old.append(key)
            elif got != value(key, self.versions[key]):
                self.wrong.append(key)
        return missed

    def settle(self, keys, seconds=0):
        """Asks until every key has been found once."""
        left = list(keys)

        def again():
            left[:] = self.read(left, seconds)
            return not left

        return wait_until(again, SETTLED_S)

    def home_again(self, pool, home, keys):
        """Asks until the keys lie where they used to, among other places."""

        def again():
            self.read(keys)
            return all(home[k] <= places for k, places in pool.where(keys).items())

        return wait_until(again, SETTLED_S)


def near(name, share, wanted):
    """A share of the keys against what consistent hashing promises."""
    why = f"{share:.1%}, wanted {wanted:.1%} give or take {SHARE_OFF_MAX:.0%}"
    verdict(f"{name} ({share:.1%} of {wanted:.1%})", abs(share - wanted) <= SHARE_OFF_MAX, why)


def lose_and_return(pool, way):
    """One of three is killed, is away for a while, and comes back empty. Returns who held what."""
    name = way.name
    app = Application(way)
    verdict(f"{name}: {len(KEYS)} keys stored", app.write(KEYS, 1))
    home = pool.where(KEYS)
    verdict(f"{name}: each lies on one appliance", [len(p) for p in home.values()] == [1] * len(KEYS))
    lost = [k for k in KEYS if home[k] == {2}]

    pool[2].kill()
    verdict(f"{name}: one killed, all keys are found again", app.settle(KEYS))
    now = pool.where(KEYS)
    moved = [k for k in KEYS if now.get(k) != home[k]]
    near(f"{name}: one killed, share of keys moved", len(moved) / len(KEYS), 1 / 3)
    others = len(set(moved) - set(lost))
    verdict(f"{name}: the keys of the others stay where they are", moved == lost, f"{others} moved")
    verdict(f"{name}: writes go on", app.write(KEYS[::3], 2))

    pool[2].start()
    verdict(f"{name}: it comes back, its keys go home", app.home_again(pool, home, lost))
    verdict(f"{name}: all keys are there", app.settle(KEYS))
    verdict(f"{name}: no old value and no wrong one", not app.old + app.wrong, f"{app.old[:5]} {app.wrong[:5]}")
    return home


def lost_twice(pool, kind):
    """What stayed behind on the others is old by the time of a second loss, unless it has expired."""
    name = kind.name
    for seconds in (0, SHORT_S):
        pool.start(3)
        app = Application(kind(pool.addresses(3)))
        app.settle(FEW)
        home = pool.where(FEW)
        pool[2].kill()
        app.settle(FEW, seconds)
        stored = time.monotonic()
        pool[2].start()
        app.home_again(pool, home, FEW)
        app.write(FEW, 2)
        if seconds:
            time.sleep(max(0.0, stored + seconds + 2 - time.monotonic()))
        pool[2].kill()
        app.settle(FEW)
        found = f"{len(app.old)} old, {len(app.wrong)} wrong"
        if seconds:
            verdict(f"{name}: lost twice, items that expire: no old value", not app.old + app.wrong, found)
        else:
            verdict(f"{name}: lost twice, items that stay: old values, as the page warns ({found})", app.old)
        app.way.close()


def cut_off(pool, kind):
    """One is unreachable for a while and keeps what it has, which is old when it is back."""
    name = kind.name
    for flushed in (False, True):
        pool.start(3)
        app = Application(kind(pool.addresses(3)))
        app.settle(FEW)
        cable("down")
        settled = app.settle(FEW) and app.write(FEW, 2)
        verdict(f"{name}: one cut off, the others take over", settled)
        if flushed:
            console = ["ip", "netns", "exec", pool[2].namespace, "tests/e2e/memc.py", "tcp", pool[2].address]
            subprocess.run([*console, "flush_all"], check=True, stdout=subprocess.DEVNULL)
        cable("up")
        back = wait_until(lambda: seen_back(app, pool, flushed), SETTLED_S)
        found = f"{len(app.old)} old, {len(app.wrong)} wrong"
        if flushed:
            app.settle(FEW)
            verdict(f"{name}: back after flush_all: no old value", back and not app.old + app.wrong, found)
        else:
            verdict(f"{name}: back as it was: old values, as the page warns ({found})", app.old)
        app.way.close()


def seen_back(app, pool, flushed):
    """Whether the client uses the second appliance again: it sees what is old there, or, where
    nothing was left, puts something there."""
    app.read(FEW)
    return app.old or flushed and any(2 in places for places in pool.where(FEW).values())


def cable(state):
    """Pulls the second appliance's cable, or puts it back."""
    subprocess.run(["ip", "link", "set", "port2", state], check=True)


def a_fourth(pool, kind):
    """A fourth appliance takes its share, and nothing else moves."""
    pool.start(3)
    way = kind(pool.addresses(3))
    Application(way).write(KEYS, 1)
    way.close()
    home = pool.where(KEYS)
    pool[4].start()
    way = kind(pool.addresses(4))
    app = Application(way)
    verdict(f"{way.name}: a fourth appliance, all keys are found again", app.settle(KEYS))
    now = pool.where(KEYS)
    moved = [k for k in KEYS if now[k] != home[k]]
    near(f"{way.name}: a fourth appliance, share of keys moved", len(moved) / len(KEYS), 1 / 4)
    verdict(f"{way.name}: they moved to the fourth", all(now[k] == home[k] | {4} for k in moved))
    verdict(f"{way.name}: no wrong value", not app.wrong + app.old)
    way.close()
    pool[4].kill()


def rings(pool, homes):
    """Who hashes alike, with weights too, and UDP by the page's own ring."""
    same = sum(homes["nutcracker"][k] == homes["libmemcached"][k] for k in KEYS)
    verdict("nutcracker and libmemcached agree on every key", same == len(KEYS), f"on {same}")
    other = sum(homes["nutcracker"][k] == homes["pymemcache"][k] for k in KEYS)
    verdict(f"pymemcache does not ({other / len(KEYS):.0%} by chance)", other < len(KEYS) / 2)

    page = definitions("ring.py")
    pool.start(3)
    weights = (2, 1, 1)
    way = Nutcracker(pool.addresses(3), weights)
    Application(way).write(KEYS, 1)
    way.close()
    home = pool.where(KEYS)
    near("nutcracker: weight 2 of 4, its share", sum(p == {1} for p in home.values()) / len(KEYS), 1 / 2)
    ring = page["ring"](dict(zip(pool.addresses(3), weights)))
    hits = sum(memc.Udp(page["place"](ring, k)).ask(b"get %s\r\n" % k, 20) == memc.hit(k, value(k, 1)) for k in FEW)
    verdict("UDP gets find what nutcracker stored, by the page's ring", hits == len(FEW), f"{hits} of {len(FEW)}")
    even = page["ring"](dict.fromkeys(pool.addresses(3), 1))
    agree = sum(home_of(pool, page["place"](even, k)) == homes["libmemcached"][k] for k in KEYS)
    verdict("the page's ring is libmemcached's", agree == len(KEYS), f"{agree} of {len(KEYS)}")


def home_of(pool, address):
    """The appliance with that address, as `where` names it."""
    return {i for i, a in enumerate(pool.all, 1) if a.address == address}


def main():
    """The whole drill."""
    pool = Pool(sys.argv[1:])
    homes = {}
    try:
        for kind in WAYS:
            pool.start(3)
            way = kind(pool.addresses(3))
            homes[way.name] = lose_and_return(pool, way)
            way.close()
            a_fourth(pool, kind)
        lost_twice(pool, Libmemcached)
        cut_off(pool, Libmemcached)
        rings(pool, homes)
    finally:
        pool.stop()
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""The same conversations with the genuine memcached and with gnomon: the answers must be the same.

    differential.py GENUINE OURS [--count N] [--first I] [--seed S] [--jobs N]   addresses as HOST:PORT

Conversations I to I + N - 1 of a seed: half are ASCII over TCP, a quarter binary over TCP, a quarter
mixed, over TCP and UDP. Each has keys of its own, so that several are held at once; those that may
flush are held alone. What differs is tried again with more patience before it counts. `--count 1
--first I` repeats one alone. Both servers are flushed now and then. The genuine one must have one
thread (`-t 1`).
Prints `ok NAME` or `FAILED NAME: why`, and exits 1 on any difference.
"""

import argparse
import functools
import itertools
import multiprocessing
import sys

import memc
from conversations.ascii import Partner
from conversations.kinds import Ascii, Binary, Mixed, shown
from conversations.links import ANSWER_S

KINDS = (Ascii, Binary, Ascii, Mixed)
# One conversation in so many may flush.
FLUSHING = 31
# Memory is freed each time that so many have been held.
SLICE = 5000
# Longest silence that is taken for one: short at first, long before a difference counts.
PATIENCE_S = ((b"a", 0.1), (b"b", ANSWER_S))
# For the tries with fewer commands. All of one length, or the conversation would be another.
MARKS = [bytes([c]) for c in b"cdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ!#$%&()*+,-.:;<=>?@[]^_{|}~"]
DIFFERENCES_MAX = 10


def may_flush(number):
    """Whether this conversation takes away from others."""
    return number % FLUSHING == 0


def agree(genuine, ours, lossy):
    """Whether two answers are the same. At a lossy end the genuine server may have said less."""
    (got, genuine_end), (wanted, ours_end) = genuine, ours
    if genuine_end not in lossy:
        return got == wanted and genuine_end == ours_end and genuine_end in ("end", "closed")
    if got and isinstance(got[-1], bytes) and genuine_end == "closed":
        # Half of an answer.
        got = got[:-1]
    return genuine_end == ours_end and got == wanted[: len(got)]


def hold(servers, seed, number, mark, idle_s, left_out=()):
    """Holds one conversation, without some of its commands: that, its outcomes, whether they agree."""
    talk = KINDS[number % len(KINDS)](seed, number, mark, may_flush(number))
    at = itertools.count()
    for burst in talk.bursts:
        burst[:] = [command for command in burst if next(at) not in left_out]
    outcomes = talk.hold(servers, idle_s)
    return talk, outcomes, agree(*outcomes, talk.lossy)


def compare(servers, seed, number):
    """Holds one conversation. How many parts of its answers are the same, and what is not, in words,
    with as few commands as it takes."""
    for mark, idle_s in PATIENCE_S:
        talk, outcomes, same = hold(servers, seed, number, mark, idle_s)
        if same:
            return len(outcomes[0][0]), None
    left_out = set()
    for index, mark in zip(reversed(range(sum(map(len, talk.bursts)))), MARKS):
        shorter = hold(servers, seed, number, mark, PATIENCE_S[0][1], left_out | {index})
        if not shorter[2]:
            left_out.add(index)
            talk, outcomes, _ = shorter
    (genuine, _), (ours, _) = outcomes
    at = next((i for i, (a, b) in enumerate(zip(genuine, ours)) if a != b), min(len(genuine), len(ours)))
    text = f"FAILED  differential, seed {seed} conversation {number}, from answer {at} on\n        sent {talk}"
    for name, (form, end) in zip(("genuine", "ours"), outcomes):
        text += f"\n        {name}: {''.join(map(shown, form[at : at + 3]))}\n            {end}"
    return at, text


def main():
    """Compares until the count is done or ten conversations differ."""
    parser = argparse.ArgumentParser()
    parser.add_argument("genuine")
    parser.add_argument("ours")
    parser.add_argument("--count", type=int, default=16_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--jobs", type=int, default=8)
    args = parser.parse_args()
    servers = (args.genuine, args.ours)
    version = memc.Tcp(args.genuine).ask(b"version\r\n").split()[1].decode()
    Partner.is_newer = [int(number) for number in version.split(".")[:3]] > [1, 6, 18]
    one = functools.partial(compare, servers, args.seed)
    end = args.first + args.count
    answers = differences = 0
    with multiprocessing.get_context("fork").Pool(args.jobs) as pool:
        for start in range(args.first, end, SLICE):
            for server in servers:
                memc.Tcp(server).ask(b"flush_all\r\n")
            numbers = range(start, min(start + SLICE, end))
            together = pool.imap_unordered(one, [n for n in numbers if not may_flush(n)], chunksize=10)
            alone = map(one, filter(may_flush, numbers))
            for same, difference in (outcome for outcomes in (together, alone) for outcome in outcomes):
                answers += same
                if difference:
                    differences += 1
                    print(difference, flush=True)
                    if differences == DIFFERENCES_MAX:
                        return 1
    if differences == 0 and answers > 0:
        print(f"ok      {args.count} random conversations are answered as memcached answers them ({answers} answers)")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())

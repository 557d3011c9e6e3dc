"""Conversations, each made from nothing but a seed and its number, on keys of its own. `mark` keeps
the keys of a second try apart.

`bursts` are its commands, lists from which some may be left out. `hold` has one with both servers
and returns for each what was answered, in normal form, and how it ended (`links`). `lossy` are the
ends behind which the genuine server may keep answers to itself.
"""

import random

from conversations import ascii, binary, packets
from conversations.links import ANSWER_S, Tcp, Udp, push_cut
from conversations.normal import Ids, ascii_form, binary_form

# What fits a datagram. Damaged requests are cut off there.
DATAGRAM_BYTES = 1400


def ascii_sentinel(token):
    """A command that stores the same nothing each time, and its answer."""
    return b"ms sentinel 0 O%s\r\n\r\n" % token, b"HD O%s\r\n" % token


def binary_sentinel(opaque):
    """A `noop`, and its answer."""
    answer = packets.HEADER.pack(packets.RESPONSE, packets.NOOP, 0, 0, 0, 0, 0, opaque, 0)
    return packets.Request(packets.NOOP, opaque=opaque).packet([]), answer


def random_cuts(rng, size):
    """Where to cut so many bytes."""
    return sorted(rng.randrange(size + 1) for _ in range(rng.choice((0, 0, 1, 3, 8))))


class Ascii:
    """ASCII over TCP, valid or not, pipelined and cut at random places. The CAS ids that it asks for
    are found out before."""

    # The genuine server keeps answers back while it waits for a data block.
    lossy = ("waits",)

    def __init__(self, seed, number, mark, may_flush):
        rng = random.Random(f"{seed}/{number}")
        self.prefix = b"%d%s" % (number, mark)
        maker = ascii.Commands(rng, self.prefix, may_flush=may_flush)
        self.keys = maker.keys
        self.commands = [maker.command() for _ in range(rng.randint(1, 12))]
        self.bursts = [self.commands]
        # Nothing follows `quit`: with bytes unread the genuine server resets the connection, and
        # answers on their way are lost.
        sentinel, self.answer = ascii_sentinel(self.prefix)
        self.last = b"quit\r\n" if rng.random() < 0.1 else sentinel
        self.cuts = random_cuts(rng, sum(map(len, self.commands)) + len(self.last))

    def hold(self, servers, idle_s):
        """See above."""
        links = [Tcp(server) for server in servers]
        prepare = [b"ms %s 6 c\r\nbefore\r\n" % key for key in self.keys]
        sentinel, answer = ascii_sentinel(b"before")
        for link in links:
            link.send(prepare, sentinel)
        data = b"".join(self.commands) + self.last
        datas = []
        for link in links:
            got, _ = link.receive(answer, ANSWER_S)
            datas.append(ascii.filled(data, [int(line[4:]) for line in got.splitlines()]))
        push_cut(links, datas, self.cuts)
        (genuine, genuine_end), (ours, ours_end) = (link.receive(self.answer, idle_s) for link in links)
        for link in links:
            link.close()
        if genuine == ours:
            return ([genuine], genuine_end), ([ours], ours_end)
        return (ascii_form(genuine, Ids()), genuine_end), (ascii_form(ours, Ids()), ours_end)

    def __str__(self):
        return f"over TCP, cut at {self.cuts}" + "".join(map(shown, [*self.commands, self.last]))


class Binary:
    """Binary requests over TCP, valid or damaged, pipelined in rounds and cut at random places. A
    round may ask for the CAS ids that the rounds before it were given."""

    # The genuine server keeps answers back while it waits for a value, and drops them when it hangs
    # up without a word; with bytes unread, what it sent may be lost on the way.
    lossy = ("waits", "closed")

    def __init__(self, seed, number, mark, may_flush):
        self.rng = rng = random.Random(f"{seed}/{number}")
        prefix = b"%d%s/" % (number, mark)
        lengths = (1, 1, 5, 10, 30, 100, 250 - len(prefix))
        keys = ascii.distinct(lambda: prefix + rng.randbytes(rng.choice(lengths)), rng.randint(2, 5))
        maker = binary.Requests(rng, keys, may_flush=may_flush)
        self.bursts = []
        for _ in range(rng.randint(1, 3)):
            maker.begin_burst()
            self.bursts.append([maker.request() for _ in range(rng.randint(1, 8))])

    def hold(self, servers, idle_s):
        """See above."""
        links = [Tcp(server) for server in servers]
        ids, parts, ends = [Ids() for _ in servers], [[] for _ in servers], []
        for number, requests in enumerate(self.bursts):
            sentinel, answer = binary_sentinel(b"end%d" % number)
            datas = [b"".join(r.packet(i.seen()) for r in requests) + sentinel for i in ids]
            push_cut(links, datas, random_cuts(self.rng, len(datas[0])))
            ends = []
            for link, i, part in zip(links, ids, parts):
                got, end = link.receive(answer, idle_s)
                part += binary_form(got, i)
                ends.append(end)
            if ends != ["end", "end"]:
                break
        for link in links:
            link.close()
        return list(zip(parts, ends))

    def __str__(self):
        return "over TCP" + "".join(map(shown, (r for requests in self.bursts for r in [*requests, "--"])))


def few_keys(maker):
    """So that commands meet."""
    del maker.keys[2:], maker.numbers[1:], maker.encoded[1:], maker.binary[1:]
    return maker


class Mixed:
    """Several connections, each ASCII or binary, over TCP or UDP, in one order for both servers: a
    burst on one of them, on keys that all use, or bursts on all at once, each on keys of its own. Most
    keys are there before."""

    lossy = ()
    # Dialect and transport, and how often.
    WAYS = ((ascii, Tcp, 4), (binary, Tcp, 3), (ascii, Udp, 2), (binary, Udp, 2))

    def __init__(self, seed, number, mark, may_flush):
        rng = random.Random(f"{seed}/{number}")
        self.prefix = b"%d%s" % (number, mark)
        shared = few_keys(ascii.Commands(rng, self.prefix + b"/", tame=True))
        self.before = b"".join(
            b"ms %s %d c\r\n%s\r\n" % (key, len(value), value)
            for keys, value in ((shared.keys + shared.encoded, b"before"), (shared.numbers, b"10"))
            for key in keys
            if rng.random() < 0.8
        )
        self.ways, makers = [], []
        for index in range(rng.choice((1, 2, 2, 3, 4, 5))):
            dialect, transport, _ = rng.choices(self.WAYS, [w[2] for w in self.WAYS])[0]
            self.ways.append((dialect, transport))
            own = few_keys(ascii.Commands(rng, self.prefix + b"%d/" % index, tame=True))
            flush = may_flush and transport is Tcp
            makers.append([self.maker(rng, dialect, transport, *of) for of in ((shared, flush), (own, False))])
        self.steps = []
        for _ in range(rng.randint(2, 8)):
            if len(makers) > 1 and rng.random() < 0.2:
                self.steps.append([(index, self.burst(rng, own)) for index, (_, own) in enumerate(makers)])
            else:
                index = rng.randrange(len(makers))
                self.steps.append([(index, self.burst(rng, makers[index][0]))])
        self.bursts = [commands for step in self.steps for _, commands in step]

    @staticmethod
    def maker(rng, dialect, transport, names, may_flush):
        """What makes commands of a dialect on these keys."""
        if dialect is ascii:
            made = ascii.Commands(rng, names.prefix, True, transport is Udp, may_flush)
            made.keys, made.numbers, made.encoded, made.binary = names.keys, names.numbers, names.encoded, names.binary
            return made
        number = names.numbers[0]
        # Joining to a number, or to a key that came in base64, takes away what is compared.
        keys, unjoined = [number, *names.keys, *names.encoded], (number, *names.encoded)
        return binary.Requests(rng, keys, transport is Udp, transport is Tcp, may_flush, unjoined)

    @staticmethod
    def burst(rng, maker):
        """Some commands."""
        count = rng.choice((1, 1, 2, 4))
        if isinstance(maker, ascii.Commands):
            return [maker.command() for _ in range(count)]
        maker.begin_burst()
        return [maker.request() for _ in range(count)]

    def hold(self, servers, idle_s):
        """See above."""
        sides = [Side(server, server is servers[0], self.ways, self.before) for server in servers]
        parts, ends = [[] for _ in servers], []
        for number, step in enumerate(self.steps):
            for side in sides:
                side.send(step, b"%s.%d" % (self.prefix, number))
            ends = [side.receive(step, idle_s, part) for side, part in zip(sides, parts)]
            if ends != ["end", "end"]:
                break
        for side in sides:
            side.close()
        return list(zip(parts, ends))

    def __str__(self):
        text = shown(self.before)
        for step in self.steps:
            for index, commands in step:
                dialect, transport = self.ways[index]
                name = f"\n          {index}, {dialect.__name__.rpartition('.')[2]} over {transport.__name__.upper()}:"
                text += name + "".join(map(shown, commands)) if commands else ""
            text += "\n          --" if any(commands for _, commands in step) else ""
        return text


class Side:
    """One server's side of a mixed conversation."""

    def __init__(self, server, is_genuine, ways, before):
        self.dialects = [dialect for dialect, _ in ways]
        self.links = [Tcp(server) if transport is Tcp else Udp(server, is_genuine) for _, transport in ways]
        self.most = [None if transport is Tcp else DATAGRAM_BYTES for _, transport in ways]
        self.ids = Ids()
        self.answers = {}
        first = Tcp(server)
        sentinel, answer = ascii_sentinel(b"before")
        first.send([before], sentinel)
        ascii_form(first.receive(answer, ANSWER_S)[0], self.ids)
        first.close()

    def send(self, step, token):
        """A burst on some links, all together."""
        seen = self.ids.seen()
        recent = (seen[::-1] + [1] * 6)[:6]
        for index, commands in step:
            if self.dialects[index] is ascii:
                datas = [ascii.filled(command, recent) for command in commands]
                sentinel, self.answers[index] = ascii_sentinel(token)
            else:
                datas = [request.packet(seen)[: self.most[index]] for request in commands]
                sentinel, self.answers[index] = binary_sentinel(b"end!")
            self.links[index].send(datas, sentinel)

    def receive(self, step, idle_s, parts):
        """Adds the answers to `parts`, and says how it ended."""
        end = "end"
        for index, _ in step:
            got, link_end = self.links[index].receive(self.answers[index], idle_s)
            form = ascii_form(got, self.ids) if self.dialects[index] is ascii else binary_form(got, self.ids, True)
            parts += form + [f"-- {index}"]
            end = link_end if end == "end" else end
        return end

    def close(self):
        """Hangs up everywhere."""
        for link in self.links:
            link.close()


SHOWN_BYTES = 120


def shown(thing):
    """A command, an answer or anything else on a line of its own, cut short."""
    text = str(thing) if isinstance(thing, (str, packets.Request)) else repr(thing)
    more = f" ({len(thing)} bytes)" if isinstance(thing, bytes) and len(thing) > SHOWN_BYTES else ""
    return f"\n            {text[: SHOWN_BYTES * 2]}{more}"

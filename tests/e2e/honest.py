"""Clients of the kernel's TCP that ask at a steady rate while something else goes on."""

import itertools
import multiprocessing
import socket
import time

PORT = 11211


class Honest(multiprocessing.Process):
    """One request after the other, in a process of its own: on connections that are there, or each on a new one."""

    RATE = 200
    CONNECTIONS = 16

    def __init__(self, address, is_new):
        super().__init__(daemon=True)
        self.address, self.is_new = address, is_new
        self.count, self.cut = multiprocessing.Value("L", 0), multiprocessing.Value("L", 0)

    @property
    def answered(self):
        """Requests that have been."""
        return self.count.value

    @property
    def ended(self):
        """Connections that the server has ended, though nobody asked for that."""
        return self.cut.value

    def connect(self):
        """A connection."""
        return socket.create_connection((self.address, PORT), timeout=3)

    def once(self, end):
        """A request and its reply."""
        try:
            end.sendall(b"mn\r\n")
            reply = end.recv(100)
        except (ConnectionResetError, BrokenPipeError):
            reply = b""
        self.count.value += reply == b"MN\r\n"
        self.cut.value += not reply
        return bool(reply)

    def ask(self, ends, n):
        """The same on a connection that is there; where it was ended, the next has another, so that the others keep
        their share."""
        ends[n] = ends[n] or self.connect()
        if not self.once(ends[n]):
            ends[n].close()
            ends[n] = None

    def run(self):
        ends = [] if self.is_new else [self.connect() for _ in range(self.CONNECTIONS)]
        at = time.monotonic()
        for n in itertools.count():
            # What was missed is not made up for.
            at = max(at + 1 / self.RATE, time.monotonic())
            time.sleep(max(0.0, at - time.monotonic()))
            try:
                if self.is_new:
                    with self.connect() as end:
                        self.once(end)
                else:
                    self.ask(ends, n % self.CONNECTIONS)
            except OSError:
                pass


class Beside:
    """Honest clients beside what happens in a `with`: `report` has a line for each kind."""

    BEFORE_S = 3

    def __init__(self, address, share):
        self.clients = {"that are there": Honest(address, False), "that come": Honest(address, True)}
        self.share = share
        self.before, self.began, self.report = {}, 0.0, []

    def __enter__(self):
        for honest in self.clients.values():
            honest.start()
        time.sleep(self.BEFORE_S)
        self.before = {who: honest.answered for who, honest in self.clients.items()}
        self.began = time.monotonic()
        return self

    def __exit__(self, *_):
        seconds = time.monotonic() - self.began
        for who, honest in self.clients.items():
            rate = self.before[who] / self.BEFORE_S
            during = (honest.answered - self.before[who]) / seconds
            text = f"in {seconds:.1f} s clients {who} have {during:.0f} of {rate:.0f} replies a second"
            self.report.append((text, rate > 0 and during >= self.share * rate))
        ended = self.clients["that are there"].ended
        self.report.append((f"{ended} connections of those that are there were ended by the server", ended == 0))
        for honest in self.clients.values():
            honest.kill()
            honest.join(10)

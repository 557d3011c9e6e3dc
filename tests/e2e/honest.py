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
        self.count = multiprocessing.Value("L", 0)

    @property
    def answered(self):
        """Requests that have been."""
        return self.count.value

    def connect(self):
        """A connection."""
        return socket.create_connection((self.address, PORT), timeout=3)

    def once(self, end):
        """A request and its reply."""
        end.sendall(b"mn\r\n")
        self.count.value += end.recv(100) == b"MN\r\n"

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
                    self.once(ends[n % self.CONNECTIONS])
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
        for honest in self.clients.values():
            honest.kill()
            honest.join(10)

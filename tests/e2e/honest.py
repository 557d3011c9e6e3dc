"""Clients of the kernel's TCP that ask at a steady rate while something else goes on."""

import socket
import threading
import time

PORT = 11211


class Honest(threading.Thread):
    """One request after the other: on connections that are there, or each on a new one."""

    RATE = 200
    CONNECTIONS = 16

    def __init__(self, address, is_new):
        super().__init__(daemon=True)
        self.address, self.is_new = address, is_new
        self.ends = [] if is_new else [self.connect() for _ in range(self.CONNECTIONS)]
        self.asked = self.answered = 0
        self.over = False

    def connect(self):
        """A connection."""
        return socket.create_connection((self.address, PORT), timeout=3)

    def once(self, end):
        """A request and its reply."""
        end.sendall(b"mn\r\n")
        return end.recv(100) == b"MN\r\n"

    def run(self):
        at = time.monotonic()
        while not self.over:
            at += 1 / self.RATE
            time.sleep(max(0.0, at - time.monotonic()))
            self.asked += 1
            try:
                if self.is_new:
                    with self.connect() as end:
                        self.answered += self.once(end)
                else:
                    self.answered += self.once(self.ends[self.asked % self.CONNECTIONS])
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
            honest.over = True
            text = f"in {seconds:.1f} s clients {who} have {during:.0f} of {rate:.0f} replies a second"
            self.report.append((text, rate > 0 and during >= self.share * rate))
        for honest in self.clients.values():
            honest.join(10)

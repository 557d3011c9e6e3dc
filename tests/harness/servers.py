"""Servers: gnomon, and the genuine memcached beside it."""

import os
import signal

from harness import processes

GNOMON = os.environ.get("GNOMON", "target/release/gnomon")
"""What is tested."""

TOOLS = os.environ.get("GNOMON_TOOLS", "target/release")
"""Where the other programs are: gnomon-replay, gnomon-pcapgen, gnomon-linear, gnomon-study."""

HERE = "127.0.0.1:11211"
GENUINE = "127.0.0.1:11311"

GETS_FAR_S = 30
"""Longest wait for a server to get that far."""


class Server(processes.Process):
    """`gnomon serve`, in a namespace."""

    def __init__(self, check, place, *flags, log):
        super().__init__(*place.argv(GNOMON, "serve", *flags), log=log)
        self.check, self.place = check, place

    def tail(self):
        """The end of its log."""
        return "\n".join(self.said().splitlines()[-60:])

    def gets_to(self, name, condition):
        """A check: the condition holds before long, as long as the server lives. Otherwise the test ends."""
        good = processes.wait_for(GETS_FAR_S, lambda: self.gone() or condition()) and not self.gone()
        self.check.must(name, good, f"the server did not get that far\n{self.tail()}")

    def serves(self, name, address=HERE, place=None):
        """The same of its answers over UDP."""
        self.gets_to(name, lambda: (place or self.place).waits(address))

    def ready(self, name):
        """The same of the line that says so."""
        self.gets_to(name, self.is_ready)

    def is_ready(self):
        """Whether it has said so."""
        return "ready" in self.said().lower()

    def stop(self):
        """A check: it ends when it is asked to, in good order."""
        self.send_signal(signal.SIGTERM)
        status = self.ends(15)
        why = "still there after 15 s" if status is None else f"exit status {status}\n{self.tail()}"
        self.check("stops on SIGTERM with status 0", status == 0, why)


class Memcached(processes.Process):
    """The genuine server, or another in its place, on GENUINE, over TCP and UDP."""

    def __init__(self, check, place, *flags, log, program="memcached"):
        at = "-u nobody -l 127.0.0.1 -p 11311 -U 11311 -t 2"
        super().__init__(*place.argv(program, *at.split(), *flags), log=log)
        check("memcached answers", place.waits(GENUINE, 10))

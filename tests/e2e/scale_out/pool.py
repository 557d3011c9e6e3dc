"""The appliances of the drill: started, killed, and asked directly what they hold.

Each runs in a namespace of its own, made by the test and named on its command line.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import memc  # noqa: E402 (from the folder above)

NETWORK = "10.0.0"
PORT = 11211
START_S = 30.0
KEYS_PER_GET = 100

TO_THE_END = ["setpriv", "--pdeathsig", "KILL"]
"""In front of what must not outlive this process, however it ends."""


class Appliance:
    """One appliance, number 1 and up."""

    def __init__(self, number, namespace):
        self.namespace = namespace
        self.host = f"{NETWORK}.{10 + number}"
        self.address = f"{self.host}:{PORT}"
        self.process = None

    def start(self):
        """Starts it, empty, and waits until it answers."""
        command = [os.environ.get("GNOMON", "target/release/gnomon"), "serve", "-m", "64", "-l", self.host]
        command += ["--trusted", f"{NETWORK}.0/24"]
        self.process = subprocess.Popen(
            [*TO_THE_END, "ip", "netns", "exec", self.namespace, *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        if not memc.wait(self.address, START_S):
            raise RuntimeError(f"{self.address} does not answer")

    def kill(self):
        """As when a process dies: no farewell."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process = None

    def holds(self, keys):
        """What it holds of these keys, asked directly."""
        client = memc.Tcp(self.address)
        held = {}
        for i in range(0, len(keys), KEYS_PER_GET):
            answer = client.ask(b"get %s\r\n" % b" ".join(keys[i : i + KEYS_PER_GET]))
            words = answer.split(b"\r\n")[:-2]
            for head, value in zip(words[::2], words[1::2]):
                held[head.split()[1]] = value
        client.close()
        return held

    def flush(self):
        """Forgets everything."""
        client = memc.Tcp(self.address)
        client.ask(b"flush_all\r\n")
        client.close()


class Pool:
    """All of them."""

    def __init__(self, namespaces):
        self.all = [Appliance(i, ns) for i, ns in enumerate(namespaces, 1)]

    def __getitem__(self, number):
        return self.all[number - 1]

    def start(self, count):
        """The first `count` run and are empty; the others do not run."""
        for number, appliance in enumerate(self.all, 1):
            if number > count and appliance.process:
                appliance.kill()
            elif number <= count and appliance.process:
                appliance.flush()
            elif number <= count:
                appliance.start()

    def addresses(self, count):
        """Those of the first `count`."""
        return [a.address for a in self.all[:count]]

    def where(self, keys):
        """Which appliances hold each key that somebody holds: key to a set of numbers."""
        places = {}
        for number, appliance in enumerate(self.all, 1):
            if appliance.process:
                for key in appliance.holds(keys):
                    places.setdefault(key, set()).add(number)
        return places

    def stop(self):
        """Ends all."""
        for appliance in self.all:
            if appliance.process:
                appliance.kill()


def wait_until(condition, seconds, pause_s=0.1):
    """Whether the condition became true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
    return True

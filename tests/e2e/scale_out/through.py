"""Ways to several appliances, each with what docs/scale-out.md shows: `get`, `set`, nothing else.

A way is made with the addresses of the appliances. Its `get` returns a value or None, and raises
`Unavailable` when it was told of a failure; `set`, with a number of seconds after which the value
expires or 0, returns whether it was stored.
"""

import os
import pathlib
import re
import subprocess
import tempfile

from pool import TO_THE_END, memc, wait_until

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "scale-out.md"


class Unavailable(Exception):
    """The request failed, and said so."""


def block(name):
    """The block of the page that is marked as tested under this name."""
    found = re.findall(rf"<!-- tested: {re.escape(name)} -->\n```\w*\n(.*?)```", PAGE.read_text(), re.S)
    if len(found) != 1:
        raise RuntimeError(f"{PAGE}: {len(found)} blocks named {name}")
    return found[0]


def definitions(name):
    """What the Python in a block defines."""
    scope = {}
    exec(compile(block(name), f"{PAGE.name}:{name}", "exec"), scope)
    return scope


class Nutcracker:
    """A client that knows one address: nutcracker's."""

    name = "nutcracker"

    def __init__(self, servers, weights=()):
        # All of the page's configuration but the list of servers.
        config, listed = block("nutcracker.yml").split("servers:\n")
        indent = listed[: listed.index("-")]
        weights = weights or [1] * len(servers)
        config += "servers:\n" + "".join(f"{indent}- {s}:{w}\n" for s, w in zip(servers, weights))
        self.address = re.search(r"listen: (\S+)", config)[1]
        with tempfile.NamedTemporaryFile("w", suffix=".yml", delete=False) as file:
            file.write(config)
        command = ["nutcracker", "-c", file.name, "-s", "22222", "-a", "127.0.0.1"]
        self.process = subprocess.Popen([*TO_THE_END, *command], stderr=subprocess.DEVNULL)
        self.client = None
        try:
            if not wait_until(self.connect, 20):
                raise RuntimeError("nutcracker does not answer")
        finally:
            os.unlink(file.name)

    def connect(self):
        """Whether there is a connection now."""
        try:
            self.client = self.client or memc.Tcp(self.address)
        except OSError:
            return False
        return True

    def ask(self, command):
        """One command and its answer."""
        if not self.connect():
            raise Unavailable("no nutcracker")
        try:
            answer = self.client.ask(command)
        except (memc.NoReply, OSError) as e:
            self.client = None
            raise Unavailable(str(e)) from None
        if answer.startswith(b"SERVER_ERROR"):
            raise Unavailable(answer.decode())
        return answer

    def get(self, key):
        """See above."""
        answer = self.ask(b"get %s\r\n" % key)
        return None if answer == b"END\r\n" else answer.split(b"\r\n", 2)[1]

    def set(self, key, value, seconds=0):
        """See above."""
        try:
            return self.ask(memc.set_command(key, value, exptime=seconds)) == b"STORED\r\n"
        except Unavailable:
            return False

    def close(self):
        """Ends it."""
        self.process.kill()
        self.process.wait()


class Libmemcached:
    """pylibmc."""

    name = "libmemcached"

    def __init__(self, servers):
        import pylibmc

        self.error = pylibmc.Error
        self.client = definitions("libmemcached.py")["connect"](servers)

    def get(self, key):
        """See above."""
        try:
            return self.client.get(key.decode())
        except self.error as e:
            raise Unavailable(repr(e)) from None

    def set(self, key, value, seconds=0):
        """See above."""
        try:
            return self.client.set(key.decode(), value, time=seconds)
        except self.error:
            return False

    def close(self):
        """Ends it."""
        self.client.disconnect_all()


class Pymemcache:
    """pymemcache's HashClient, which tells of no failure (ignore_exc): a miss is all one sees."""

    name = "pymemcache"

    def __init__(self, servers):
        self.client = definitions("pymemcache.py")["connect"](servers)

    def get(self, key):
        """See above."""
        return self.client.get(key.decode())

    def set(self, key, value, seconds=0):
        """See above."""
        return bool(self.client.set(key.decode(), value, expire=seconds))

    def close(self):
        """Ends it."""
        self.client.close()


WAYS = (Nutcracker, Libmemcached, Pymemcache)

"""What a machine may lack, and how that is found out: `@pytest.mark.needs(NAME)` skips what needs it."""

import functools
import os
import pathlib
import shutil
import socket

from harness import newest, processes


def said_by(*argv):
    """Nothing where the command does well, otherwise what it said."""
    done = processes.run(*argv)
    return "" if done.returncode == 0 else done.stdout.strip() or f"exit status {done.returncode}"


def namespaces():
    """Network namespaces, and leave to enter them."""
    probe = f"gnomon-{os.getpid()}-probe"
    why = said_by("sh", "-c", f"ip netns add {probe} && ip netns exec {probe} true")
    processes.run("ip", "netns", "del", probe)
    return why and f"no network namespaces here: {why}"


def guest():
    """QEMU, and a TAP device for a guest's cable."""
    probe = f"gnomon-{os.getpid()}-probe"
    if not shutil.which("qemu-system-x86_64"):
        return "no qemu-system-x86_64"
    why = said_by("sh", "-c", f"ip netns add {probe} && ip -n {probe} tuntap add dev tap0 mode tap")
    processes.run("ip", "netns", "del", probe)
    return why and f"no TAP device: {why}"


def af_xdp():
    """AF_XDP sockets. The family is 44, which Python does not name."""
    try:
        socket.socket(44, socket.SOCK_RAW).close()
    except OSError as why:
        return f"no AF_XDP sockets here: {why}"
    return ""


def verbs():
    """libibverbs' headers."""
    return "" if pathlib.Path("/usr/include/infiniband/verbs.h").exists() else "no infiniband/verbs.h"


def go():
    """Go, and the library as Debian packages it."""
    there = shutil.which("go") and os.path.isdir("/usr/share/gocode/src/github.com/bradfitz/gomemcache")
    return "" if there else "no go, or no golang-github-bradfitz-gomemcache-dev"


def php():
    """PHP with its client."""
    if shutil.which("php") and not said_by("php", "-r", 'exit(class_exists("Memcached") ? 0 : 1);'):
        return ""
    return "no php, or no php-memcached"


def node():
    """Node, and the libraries in JavaScript, which are made anew only when what they are made from changes. None has a
    script to run."""
    if not shutil.which("node") or said_by("bash", "-c", NODE):
        return "no node or no npm, or the libraries cannot be fetched"
    return ""


def newest_memcached():
    """The source of the newest memcached, and what builds it."""
    return newest.newest()[1]


NODE = """set -e
wanted=tests/e2e/clients/node/package-lock.json node=target/clients/node
! cmp -s $wanted $node/made-from || exit 0
rm -rf $node && mkdir -p $node && cp tests/e2e/clients/node/package{,-lock}.json $node
timeout 120 npm ci --prefix $node --ignore-scripts --no-audit --no-fund && cp $wanted $node/made-from
"""

ALL = (namespaces, guest, af_xdp, verbs, go, php, node, newest_memcached)
NEEDS = {need.__name__: functools.cache(need) for need in ALL}

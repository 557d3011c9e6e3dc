"""What a machine may lack: `@pytest.mark.needs(NAME)` skips what needs it, and says why."""

import functools

from harness import processes

NEEDS = {
    "namespaces": (
        "no network namespaces here",
        "ip netns add $probe && ip netns exec $probe true",
    ),
    "guest": (
        "no qemu-system-x86_64, or no TAP device",
        "hash qemu-system-x86_64 && ip netns add $probe && ip -n $probe tuntap add dev tap0 mode tap",
    ),
    # AF_XDP is 44, which Python does not name.
    "af_xdp": ("no AF_XDP sockets here", "python3 -c 'import socket; socket.socket(44, socket.SOCK_RAW)'"),
    "verbs": ("no infiniband/verbs.h", "[ -e /usr/include/infiniband/verbs.h ]"),
    "go": (
        "no go, or no golang-github-bradfitz-gomemcache-dev",
        "hash go && [ -d /usr/share/gocode/src/github.com/bradfitz/gomemcache ]",
    ),
    "php": ("no php, or no php-memcached", "php -r 'exit(class_exists(\"Memcached\") ? 0 : 1);'"),
    # The libraries in JavaScript are made anew only when what they are made from changes. None has a script to run.
    "node": (
        "no node or no npm, or the libraries cannot be fetched",
        """wanted=tests/e2e/clients/node/package-lock.json node=target/clients/node
        hash node && { cmp -s $wanted $node/made-from || {
          rm -rf $node && mkdir -p $node && cp tests/e2e/clients/node/package{,-lock}.json $node &&
            timeout 120 npm ci --prefix $node --ignore-scripts --no-audit --no-fund &&
            cp $wanted $node/made-from; }; }""",
    ),
    "newest_memcached": ("the newest memcached", "tests/e2e/newest_memcached.sh"),
}
"""What is said where it is missing, and the command in bash that does well where it is there."""


@functools.cache
def lacking(need):
    """Why it is missing; nothing where it is there."""
    why, command = NEEDS[need]
    probe = "probe=gnomon-$$-probe; trap 'ip netns del $probe 2>/dev/null' EXIT"
    done = processes.run("bash", "-c", f"{probe}\n{command}", timeout=600)
    last = (done.stdout.strip().splitlines() or [""])[-1]
    return "" if done.returncode == 0 else f"{why}: {last}" if last else why

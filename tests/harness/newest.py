"""The newest memcached that Debian has the source of, built by tests/e2e/newest_memcached.sh."""

import functools
import pathlib
import subprocess


@functools.cache
def newest():
    """Its program, and nothing; or nothing, and why it cannot be had."""
    done = subprocess.run("tests/e2e/newest_memcached.sh", capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None, (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return pathlib.Path(done.stdout.strip()), ""

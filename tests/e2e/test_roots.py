"""What installs gnomon in Debian roots and containers of its own, in scripts: scripts/root.sh makes the roots.
scripts/test.sh calls them after what makes what they install; here they run by name: `scripts/e2e.sh roots -k
debian13`."""

import pytest


@pytest.mark.asked
@pytest.mark.parametrize("name", ["package", "container", "debian13"])
def test_roots(check, name):
    check.counted(f"tests/e2e/{name}.sh")

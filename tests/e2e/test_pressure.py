"""Few large values that many change while others read them, sizes that change, pages on the move: nothing is refused,
nothing is lost. On the machine's own loopback, at ports that are free.

Each load takes PRESSURE_SECONDS (5); those that wait for a minute or more run when they are named: `-k
refill-flush-75`."""

import os

import pressure
import pytest
from harness.servers import GNOMON

SECONDS = os.environ.get("PRESSURE_SECONDS", "5")


@pytest.mark.parametrize(
    "load",
    [pytest.param(load, marks=pytest.mark.asked if load.endswith(("-20", "-75")) else ()) for load in pressure.LOADS],
)
def test_pressure(check, load):
    check.counted("tests/e2e/pressure.py", "--seconds", SECONDS, load, env={"GNOMON": GNOMON})

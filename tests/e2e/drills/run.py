#!/usr/bin/env python3
"""Runs fault drills and prints one line for each.

    run.py process [NAME...]           on kernel sockets; in a network namespace of its own
    run.py wire SERVER CLIENT [NAME...]  over wires between these two namespaces; run in CLIENT
    run.py tests [NAME...]             those that are tests of cargo's
    run.py judge                       whether wrong replies are noticed
    run.py table                       docs/drills.md
"""

import socket
import sys
import time

import cargo
import drill


def run(names):
    """Runs the drills that are known by now, or those of these names. How many failed."""
    failed = 0
    for name, _, _, function in drill.DRILLS:
        if names and name not in names:
            continue
        begun = time.monotonic()
        try:
            said = function()
            print(f"ok      drill: {name} ({said}; {time.monotonic() - begun:.1f} s)", flush=True)
        except (drill.Failed, OSError, drill.memc.NoReply, drill.memc.Wrong) as why:
            failed += 1
            print(f"FAILED  drill: {name}: {why or type(why).__name__}", flush=True)
    return failed


def main(argv):
    """The command line above."""
    match argv[1:]:
        case ["process", *names]:
            import process  # noqa: F401 - it brings its drills

            return min(run(names), 1)
        case ["wire", server, client, *names]:
            import wire

            wire.between(server, client)
            return min(run(names), 1)
        case ["tests", *names]:
            return min(cargo.run(names), 1)
        case ["judge"]:
            return judge()
        case ["table"]:
            print(table(), end="")
            return 0
    print(__doc__)
    return 2


def judge():
    """A server that lies, or is slow: each lie must be noticed, and the truth must not."""
    address = ("127.0.0.1", 0)
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(address)
    probe = drill.Probe(f"127.0.0.1:{server.getsockname()[1]}")

    def told(number, text, seq=0, total=1):
        wanted = probe.send()
        _, client = server.recvfrom(2048)
        server.sendto(drill.HEADER.pack((wanted + number) & 0xFFFF, seq, total, 0) + text(wanted), client)
        return probe.receive(drill.SOON_S) == wanted

    def truth(number):
        return drill.memc.hit(drill.key(number), drill.value(number))

    lies = {
        "another key's value": (0, lambda n: truth(n + 1)),
        "a bit of the value": (0, lambda n: truth(n)[:-9] + bytes([truth(n)[-9] ^ 1]) + truth(n)[-8:]),
        "a miss": (0, lambda n: b"END\r\n"),
        "nobody's reply": (1, truth),
        "half a reply": (0, truth, 0, 2),
    }
    failed = 0
    for name, lie in lies.items():
        try:
            told(*lie)
        except drill.Failed:
            continue
        failed += 1
        print(f"FAILED  judge: {name} is not noticed")
    for tries, holds in (((2.0, 3.0, 2.0), False), ((2.0, 0.5), not drill.STRICT), ((0.5,), True)):
        took = iter(tries)
        try:
            drill.in_time("judge", 1.0, lambda took=took: next(took))
            held = True
        except drill.Failed:
            held = False
        if held != holds:
            failed += 1
            print(f"FAILED  judge: recovery after {tries} s is judged wrongly")
    if not told(0, truth):
        failed += 1
        print("FAILED  judge: a right reply is not taken")
    return min(failed, 1)


HEAD = """\
# Fault drills

<!-- Made from the drills: `tests/e2e/drills/run.py table >docs/drills.md`. `tests/e2e/test_drills.py` compares. -->

What is done to a running gnomon in CI, each once, by `scripts/e2e.sh drills`. What must hold in every
drill: no crash; no wrong value, however late; the packet-accounting invariant (D10, `received = answered + punted + dropped +
in flight`) and every packet slot free at the end, for which the process ends with status 0; and
recovery. A line of the script says what was measured. `docs/bad-days.md` says how an operator sees
each of these days.

Recovery has bounds, and a drill that breaks its own fails:

| after | bound | judged by |
|---|---|---|
| a link's return | replies within 1 s | the client's clock, in the drills on wires and in `make boot-test`; the best of three tries, each with a fault of its own |
| a NIC's wish for a reset | it works again within 3 s | the time of twenty resets under load, the median; and the pauses between tries when resets fail, on a clock that the test turns (`appliance/src/observe/health/port.rs`) |
| a GPU that is late, with the deadline of 5 ms | the CPU's reply within 10 ms | turns of the worker: the reply leaves in the second that begins after the deadline, at the latest |

A machine that is busy with other things makes one try wait for a CPU; a server that is slow to recover is
slow each time. On a quiet machine `DRILLS_STRICT_TIME=1` has the clock judge every one of them, the
first try alone.

NICs under vfio have their drills in `make boot-test`: the process killed, the cable pulled and put back,
the NIC unplugged under the running service and plugged in again.
"""


def table():
    """The page about all drills."""
    import process  # noqa: F401
    import wire  # noqa: F401

    parts = [HEAD]
    count = len(drill.DRILLS) + len(cargo.TESTS)
    parts.append(f"\n{count} drills: {len(drill.DRILLS)} on the process and over wires, {len(cargo.TESTS)} as tests.\n")
    for title, module in (("The process, on kernel sockets", "process"), ("Wires: `af_packet`, `net_tap`, the exception path", "wire")):
        parts.append(f"\n## {title}\n\n| drill | what is done | what must hold |\n|---|---|---|\n")
        parts += (
            f"| {name} | {fault} | {holds} |\n"
            for name, fault, holds, function in drill.DRILLS
            if function.__module__ == module
        )
    parts.append("\n## Tests\n\nOn the fault-injecting port, DPDK's virtual devices, and GPUs that fail.\n")
    parts.append("\n| drill | test | in |\n|---|---|---|\n")
    parts += (f"| {name} | `{test}` | `{where}` |\n" for name, test, where in cargo.TESTS)
    return "".join(parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv))

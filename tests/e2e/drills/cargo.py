"""Drills that are tests of cargo's: run by name, so that each is known to have run."""

import re
import subprocess

JOURNEYS = "dataplane/tests/journeys/"

TESTS = [
    ("loss, 0.1 % to 50 %", "drills::loss_from_a_thousandth_to_half", JOURNEYS),
    ("frames twice", "drills::frames_that_come_twice", JOURNEYS),
    ("frames out of order", "drills::frames_that_overtake", JOURNEYS),
    ("frames cut", "drills::frames_that_are_cut", JOURNEYS),
    ("frames too long", "drills::frames_that_are_too_long", JOURNEYS),
    ("bursts short or empty", "drills::bursts_that_are_short_or_empty", JOURNEYS),
    ("transmit ring full", "drills::a_transmit_ring_that_is_full", JOURNEYS),
    ("packet slots run out", "drills::slots_that_run_out", JOURNEYS),
    ("checksum flags missing", "drills::checksums_that_the_device_does_not_vouch_for", JOURNEYS),
    ("link down for 1 ms", "drills::a_link_that_is_down_for_a_millisecond", JOURNEYS),
    ("link down for 2 s", "drills::a_link_that_is_down_for_two_seconds", JOURNEYS),
    ("1,000 link flaps, frame by frame", "drills::a_link_that_flaps_a_thousand_times", JOURNEYS),
    ("device rests mid-burst", "drills::a_device_that_rests_in_the_middle_of_a_burst", JOURNEYS),
    ("device gone for good", "drills::a_device_that_is_gone_for_good", JOURNEYS),
    ("clock jump", "drills::a_clock_that_jumps", JOURNEYS),
    ("all faults of a wire at once", "faults::a_bad_wire_costs_replies_but_never_a_wrong_byte_or_a_slot", JOURNEYS),
    ("reset event (`INTR_RESET`) under load, removal event", "resets", "driver-shim/tests/dpdk_reset.rs"),
    ("multi-segment mbufs, mbuf pool empty", "pcap", "driver-shim/tests/dpdk_pcap.rs"),
    ("GPU batch timeout: launches lost", "offload_faults::launches_that_get_lost", JOURNEYS),
    ("GPU late: the CPU's reply comes after the deadline", "offload_faults::the_cpu_takes_over_when_the_deadline_has_passed", JOURNEYS),
    ("GPU refuses launches", "offload_faults::launches_that_are_refused", JOURNEYS),
    ("GPU sticky error", "offload_faults::a_sticky_error", JOURNEYS),
    ("GPU hints wrong", "offload_faults::hints_that_are_all_wrong", JOURNEYS),
    ("GPU descriptors wrong", "offload_faults::descriptors_that_are_wrong", JOURNEYS),
    ("GPU reply headers wrong", "offload_faults::heads_that_are_wrong", JOURNEYS),
    ("GPU out of memory, registration refused, kernels refused", "a_card_that_cannot_is_an_error_at_start_up", "gpu/tests/offload.rs"),
    ("GPU kernel that never starts", "a_kernel_that_never_starts_is_noticed_at_start_up", "gpu/tests/offload.rs"),
    ("CUDA refuses memory, registration, PTX", "what_the_driver_refuses_is_told_and_nothing_is_kept", "gpu/tests/cuda_card.rs"),
    ("CUDA context broken (700, 719)", "a_broken_context_ends_the_use_of_the_card_and_frees_nothing", "gpu/tests/cuda_card.rs"),
]
"""Name of the drill, of the test, and where it stands. A folder is a test of several files."""


def run(names):
    """Runs those of these names, or all. How many failed."""
    tests = [row for row in TESTS if not names or row[0] in names]
    binaries = {where.rstrip("/").rsplit("/", 1)[1].removesuffix(".rs") for _, _, where in tests}
    command = ["cargo", "test", "--workspace", "--no-fail-fast"]
    command += [word for name in sorted(binaries) for word in ("--test", name)]
    command += ["--", "--exact", *(test for _, test, _ in tests)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    ended = dict(re.findall(r"^test (\S+) \.\.\. (\w+)", done.stdout, re.MULTILINE))
    failed = 0
    for name, test, _ in tests:
        if ended.get(test) == "ok":
            print(f"ok      drill: {name}", flush=True)
        else:
            failed += 1
            print(f"FAILED  drill: {name}: {test}: {ended.get(test, 'it did not run')}", flush=True)
    if failed:
        print("".join(f"        | {line}\n" for line in (done.stdout + done.stderr).splitlines()[-60:]), end="")
    return failed

#!/usr/bin/env python3
"""Instructions of the data plane per request, out of callgrind's profiles, against a budget.

    instructions.py count FILE REQUESTS         instructions per request in the profile FILE
    instructions.py compare BUDGET NAME COUNT   0: within the budget; 1: above
    instructions.py toolchain BUDGET            the tool chain that the budget was written with

Only what stands in our own binary counts: the C library picks its copies by the processor. The
port in memory, which stands in for a NIC, and the study's own code are left out.
"""

import re
import sys
import tomllib

# More than this above the budget fails.
TOLERANCE = 0.03
# The port and the study, and the one function of others that only the port uses.
OUTSIDE = re.compile(r"driver_shim::ports::|^<?tools::|arrayvec::ArrayVec<.*>::extend_from_iter")


def instructions(lines):
    """{(binary, function): instructions of its own} of a callgrind profile."""
    names, costs = {}, {}
    binary = function = None
    callee = False
    for line in lines:
        named = re.match(r"(c?)(ob|fn)=\((\d+)\)(?: (.*))?$", line)
        if named:
            called, kind, number, name = named.groups()
            if name is not None:
                names[kind, number] = name
            if not called and kind == "ob":
                binary = names[kind, number]
            elif not called:
                function = names[kind, number]
        elif line.startswith("calls="):
            callee = True
        elif re.match(r"[0-9+*-]", line):
            # The line behind a call holds what the callee took, which stands with the callee too.
            if not callee:
                key = binary, function
                costs[key] = costs.get(key, 0) + int(line.split()[1])
            callee = False
    return costs


def counted(costs):
    """What of it is the data plane's."""
    return sum(
        n
        for (binary, function), n in costs.items()
        if binary.endswith("gnomon-study") and not OUTSIDE.search(function)
    )


def compare(budget, count):
    """Whether a count is within a budget, and what to say."""
    change = count / budget - 1
    text = f"{count:.0f} instructions per request, budget {budget} ({change:+.1%})"
    if count > budget * (1 + TOLERANCE):
        return False, text + ": too many"
    if count < budget * (1 - TOLERANCE):
        text += "; scripts/instructions.sh --update would hold what was won"
    return True, text


def main(what, *args):
    if what == "count":
        with open(args[0], encoding="utf-8") as profile:
            print(round(counted(instructions(profile)) / int(args[1])))
        return 0
    with open(args[0], "rb") as file:
        budget = tomllib.load(file)
    if what == "toolchain":
        print(budget["toolchain"])
        return 0
    fits, text = compare(budget["instructions"][args[1]], int(args[2]))
    print(text)
    return 0 if fits else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

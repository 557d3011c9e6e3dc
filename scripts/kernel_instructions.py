#!/usr/bin/env python3
"""Instructions that a warp of the GET kernels spends on a batch, against a budget.

    scripts/kernel_instructions.py            compares gpu/ptx with the budget; the last line counts
    scripts/kernel_instructions.py --update   writes the budget anew
    scripts/kernel_instructions.py --blocks KERNEL WARP   what a warp spends where, for people

The committed PTX is turned into Python, a generator a thread, and run over a batch in memory: one
block, requests of 72-byte frames, each a `get` of one 16-byte key that the index has, with
checksums known to be good and without reply headers: 32 of them (`small`), 128, and 128 of which one
in four is, in turn, a `get` of three keys, an `mg`, a `gets`, or a miss (`mixed`), or is one of the first
three, a binary GETK, a `get` whose line ends without `\\r`, one with a control character, a datagram without
text, or a line that is no look-up (`varied`). Counted are the busiest
main warp, whose plain requests wait for nothing else, and the busiest helper, on which the block's end
waits. A warp's instructions are those of its basic blocks, each as often as the lane that was there most
often: lanes that come to the same place for the same time count once. The block's `path` adds up, from
barrier to barrier, its busiest warp. Percentages are of the plain batch: what the busiest main warp, the
busiest warp of the block, and the path spend on the mixed one. A descriptor that is not right is an error. Counts depend on nothing but the PTX.
"""

import re
import struct
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGET = ROOT / "docs/benchmarks/kernels.toml"
THREADS, WARP = 256, 32
SMALL, FULL = 32, 128
"""Requests of a batch: of one main warp, of a whole block."""
SLOT_BYTES, FRAME_OFF = 2048, 128
M32, M64 = (1 << 32) - 1, (1 << 64) - 1
SPACE = 40
"""Addresses: 0 global, 1 shared, 2 parameters, 3 the thread's own; in bits from here on."""
SHARED, PARAM, LOCAL = (n << SPACE for n in (1, 2, 3))

# ---------------------------------------------------------------------------------------------
# PTX as Python.


def integer(kind):
    """`(bits, signed)` of a type such as `u32`."""
    return (1 if kind == "pred" else int(kind[1:])), kind[0] == "s"


def signed(value, bits):
    """A number's value as two's complement."""
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def find_top(value, bits):
    """The highest set bit's place, or all ones."""
    return value.bit_length() - 1 if value else M32


def permute(a, b, s):
    """prmt.b32."""
    both, out = b << 32 | a, 0
    for i in range(4):
        sel = s >> 4 * i & 15
        byte = both >> 8 * (sel & 7) & 255
        if sel & 8:
            byte = 255 if byte & 128 else 0
        out |= byte << 8 * i
    return out


def logic(a, b, c, table, mask):
    """lop3.b32."""
    out = 0
    for i in range(8):
        if table >> i & 1:
            out |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
    return out & mask


def dot(a, b, c):
    """dp4a.u32.u32."""
    return c + sum((a >> i & 255) * (b >> i & 255) for i in range(0, 32, 8))


HELPERS = {f.__name__: f for f in (signed, find_top, permute, logic, dot)}
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
           "lo": "<", "ls": "<=", "hi": ">", "hs": ">="}


class Untranslatable(Exception):
    """An instruction that nobody has needed before."""


class Kernel:
    """One kernel: its basic blocks, and a generator function that is a thread of it."""

    def __init__(self, text):
        self.name = re.search(r"\.entry (\w+)\(", text)[1]
        self.param_bytes = int(re.search(r"_param_0\[(\d+)\]", text)[1])
        body = text[text.index("\n{\n") + 3:]
        local = re.search(r"\.local \.align \d+ \.b8 \w+\[(\d+)\]", body)
        self.local_bytes = int(local[1]) if local else 0
        self.blocks, self.labels, lines = [], {}, []
        for line in re.sub(r"//[^\n]*", "", body).replace("\n\t{", "").split("\n"):
            line = line.strip()
            label = re.fullmatch(r"(\$\w+):", line)
            if label:
                if lines:
                    self.blocks.append(lines)
                    lines = []
                self.labels[label[1]] = len(self.blocks)
            elif line.endswith(";") and not line.startswith("."):
                lines.append(line[:-1])
                if re.match(r"(@!?%p\d+ )?(bra|ret|exit)", line):
                    self.blocks.append(lines)
                    lines = []
        if lines:
            self.blocks.append(lines)
        source = self.source()
        scope = dict(HELPERS)
        exec(compile(source, self.name, "exec"), scope)  # what this file made of our own PTX
        self.thread = scope["thread"]

    # Operands.

    def value(self, text):
        """An operand as a Python expression."""
        text = text.strip()
        if text.startswith("%"):
            special = {"%tid.x": "tid", "%ctaid.x": "0", "%ntid.x": str(THREADS), "%nctaid.x": "1",
                       "%laneid": f"(tid % {WARP})"}
            return special.get(text) or text.replace("%", "r_").replace(".", "_")
        if re.fullmatch(r"-?\d+", text):
            return text if text[0] != "-" else f"({int(text)})"
        if re.fullmatch(r"0[xX][0-9a-fA-F]+U?", text):
            return str(int(text.rstrip("U"), 16))
        if text == "shared_bytes":
            return str(SHARED)
        if text.endswith("_param_0"):
            return str(PARAM)
        if text.startswith("__local_depot"):
            return str(LOCAL)
        raise Untranslatable(text)

    def address(self, text):
        base, _, offset = text.strip("[] ").partition("+")
        value = self.value(base)
        return f"({value} + {offset})" if offset else value

    # Instructions.

    def instruction(self, line):
        """`(guard, statements)` of one instruction."""
        no, guard, op, tail = re.match(r"(?:@(!?)(%p\d+) )?(\S+)\s*(.*)", line, re.S).groups()
        operands = re.findall(r"\s*(\{[^}]*\}|\[[^\]]*\]|[^,]+)(?:,|$)", tail)
        condition = None
        if guard:
            condition = f"not {self.value(guard)}" if no else self.value(guard)
        return condition, self.statements(op.split("."), operands)

    def statements(self, op, args):
        name, kind = op[0], op[-1]
        if name in ("ld", "st", "ldu"):
            return self.memory(op, args)
        if name in ("fence", "membar", "pragma", "nanosleep"):
            return ["pass"]
        if name in ("bar", "barrier"):
            if "warp" in op:
                return [f"yield 'sync', {self.value(args[0])}, 0, 0"]
            return ["yield 'bar', 0, 0, 0"]
        if name == "vote":
            p = args[1]
            value = f"1 - {self.value(p[1:])}" if p[0] == "!" else self.value(p)
            return [f"{self.value(args[0])} = yield '{op[2]}', {self.value(args[2])}, {value}, 0"]
        if name == "shfl":
            to = args[0].split("|")[0]
            return [f"{self.value(to)} = yield '{op[2]}', {self.value(args[4])}, "
                    f"{self.value(args[1])}, ({self.value(args[2])}, {self.value(args[3])})"]
        if name in ("atom", "red"):
            return self.atomic(op, args)
        to, a = args[0], [] if name == "mov" else [self.value(x) for x in args[1:]]
        bits, is_signed = integer(kind)
        mask = (1 << bits) - 1
        if name in ("add", "addc", "sub", "subc") and (name[-1] == "c" or "cc" in op):
            sign = "-" if name[:3] == "sub" else "+"
            borrow = f" {sign} carry" if name[-1] == "c" else ""
            return [f"whole = ({a[0]} & {mask}) {sign} ({a[1]} & {mask}){borrow}",
                    f"carry = whole >> {bits} & 1", f"{self.value(to)} = whole & {mask}"]
        if name == "mov":
            return self.move(to, args[1], bits)
        if name == "setp":
            return self.compare(op, args)
        if name in ("and", "or", "xor") and kind == "pred":
            sign = {"and": "&", "or": "|", "xor": "^"}[name]
            return [f"{self.value(to)} = {a[0]} {sign} {a[1]}"]
        if name == "not" and kind == "pred":
            return [f"{self.value(to)} = 1 - {a[0]}"]
        num = [f"signed({x} & {mask}, {bits})" if is_signed else f"({x} & {mask})" for x in a]
        shift = f"min({a[1]} & {M32}, {bits})" if len(a) > 1 else ""
        wide = "wide" in op
        expressions = {
            "add": lambda: f"{a[0]} + {a[1]}",
            "sub": lambda: f"{a[0]} - {a[1]}",
            "mul": lambda: f"({num[0]} * {num[1]})" + (f" >> {bits}" if "hi" in op else ""),
            "mad": lambda: f"{num[0]} * {num[1]}" + (f" >> {bits}" if "hi" in op else "") + f" + {a[2]}",
            "div": lambda: f"{num[0]} // {num[1]}",
            "rem": lambda: f"{num[0]} % {num[1]}",
            "min": lambda: f"min({num[0]}, {num[1]})",
            "max": lambda: f"max({num[0]}, {num[1]})",
            "neg": lambda: f"-{a[0]}",
            "and": lambda: f"{a[0]} & {a[1]}",
            "or": lambda: f"{a[0]} | {a[1]}",
            "xor": lambda: f"{a[0]} ^ {a[1]}",
            "not": lambda: f"~{a[0]}",
            "cnot": lambda: f"int({a[0]} == 0)",
            "shl": lambda: f"{a[0]} << {shift}",
            "shr": lambda: f"{num[0]} >> {shift}",
            "shf": lambda: self.funnel(op, a),
            "selp": lambda: f"{a[0]} if {a[2]} else {a[1]}",
            "popc": lambda: f"({a[0]} & {mask}).bit_count()",
            "clz": lambda: f"{bits} - ({a[0]} & {mask}).bit_length()",
            "brev": lambda: f"int(format({a[0]} & {mask}, '0{bits}b')[::-1], 2)",
            "bfind": lambda: (f"{bits - 1} - find_top({num[0]}, {bits})" if "shiftamt" in op
                              else f"find_top({num[0]}, {bits})"),
            "prmt": lambda: f"permute({a[0]} & {M32}, {a[1]} & {M32}, {a[2]})",
            "dp4a": lambda: f"dot({a[0]}, {a[1]}, {a[2]})",
            "lop3": lambda: f"logic({a[0]}, {a[1]}, {a[2]}, {a[3]}, {mask})",
            "bfe": lambda: f"{num[0]} >> ({a[1]} & 255) & ((1 << ({a[2]} & 255)) - 1)",
            "bfi": lambda: self.insert(a, bits),
            "cvt": lambda: self.convert(op, a[0]),
            "cvta": lambda: a[0],
        }
        if name not in expressions:
            raise Untranslatable(".".join(op))
        if name == "cvt":
            mask = (1 << integer(op[-2])[0]) - 1
        if name in ("popc", "clz", "bfind"):
            mask = M32
        if wide:
            mask = (1 << 2 * bits) - 1
        return [f"{self.value(to)} = ({expressions[name]()}) & {mask}"]

    def funnel(self, op, a):
        both, by = f"(({a[1]} & {M32}) << 32 | {a[0]} & {M32})", f"({a[2]} & 31)"
        if "clamp" in op:
            by = f"min({a[2]} & {M32}, 32)"
        return f"{both} >> {by}" if op[1] == "r" else f"{both} << {by} >> 32"

    def insert(self, a, bits):
        field = f"((1 << ({a[3]} & 255)) - 1 << ({a[2]} & 255))"
        return f"{a[1]} & ~{field} | ({a[0]} << ({a[2]} & 255)) & {field}"

    def convert(self, op, a):
        bits, is_signed = integer(op[-1])
        value = f"({a} & {(1 << bits) - 1})"
        return f"signed({value}, {bits})" if is_signed else value

    def move(self, to, a, bits):
        half = bits // 2
        if to.startswith("{"):
            parts = [p.strip() for p in to.strip("{}").split(",")]
            each = bits // len(parts)
            return [f"{self.value(p)} = {self.value(a)} >> {each * i} & {(1 << each) - 1}"
                    for i, p in enumerate(parts) if p != "_"]
        if a.startswith("{"):
            parts = [p.strip() for p in a.strip("{}").split(",")]
            each = bits // len(parts)
            return [f"{self.value(to)} = " + " | ".join(
                f"({self.value(p)} & {(1 << each) - 1}) << {each * i}" for i, p in enumerate(parts))]
        if re.fullmatch(r"%\w*timer\w*|%clock\w*", a):
            return [f"{self.value(to)} = 0"]
        return [f"{self.value(to)} = {self.value(a)} & {(1 << bits) - 1}"]

    def compare(self, op, args):
        bits, is_signed = integer(op[-1])
        mask = (1 << bits) - 1
        a, b = (f"({self.value(x)} & {mask})" for x in args[1:3])
        if is_signed and op[1] not in ("eq", "ne"):
            a, b = f"signed({a}, {bits})", f"signed({b}, {bits})"
        text = f"int({a} {COMPARE[op[1]]} {b})"
        if len(args) > 3:
            third = args[3]
            third = f"(1 - {self.value(third[1:])})" if third[0] == "!" else self.value(third)
            text = f"({text}) {'&' if op[2] == 'and' else '|'} {third}"
        return [f"{self.value(args[0])} = {text}"]

    def memory(self, op, args):
        bits, is_signed = integer(op[-1])
        each = bits // 8
        what, where = (args[0], args[1]) if op[0] != "st" else (args[1], args[0])
        regs = [p.strip() for p in what.strip("{}").split(",")]
        # Addresses of shared memory may be of 32 bits.
        place = "1" if "shared" in op else "at >> 40"
        out = [f"at = {self.address(where)}", f"place = memory[{place}]", "at &= 0xffffffffff"]
        if each * len(regs) == 16:
            out.append("assert at % 16 == 0, 'a 16-byte access to an odd address'")
        for i, reg in enumerate(regs):
            span = f"place[at + {each * i}:at + {each * (i + 1)}]"
            if op[0] == "st":
                out.append(f"{span} = ({self.value(reg)} & {(1 << bits) - 1}).to_bytes({each}, 'little')")
            elif reg != "_":
                out.append(f"{self.value(reg)} = int.from_bytes({span}, 'little')")
        return out

    def atomic(self, op, args):
        bits, _ = integer(op[-1])
        each, mask = bits // 8, (1 << bits) - 1
        to = None
        if op[0] == "atom":
            to, *args = args
        where, a = args[0], [self.value(x) for x in args[1:]]
        out = [f"at = {self.address(where)}", "place = memory[at >> 40]", "at &= 0xffffffffff",
               f"old = int.from_bytes(place[at:at + {each}], 'little')"]
        kind = next(k for k in ("add", "exch", "cas", "or", "and", "max", "min") if k in op)
        new = {"add": lambda: f"old + {a[0]}", "exch": lambda: a[0], "or": lambda: f"old | {a[0]}",
               "and": lambda: f"old & {a[0]}", "max": lambda: f"max(old, {a[0]})",
               "min": lambda: f"min(old, {a[0]})",
               "cas": lambda: f"{a[1]} if old == {a[0]} else old"}[kind]()
        out.append(f"place[at:at + {each}] = (({new}) & {mask}).to_bytes({each}, 'little')")
        return out + ([f"{self.value(to)} = old"] if to else [])

    # The whole.

    def source(self):
        """The generator function: basic blocks, found by halving."""
        names = {self.value(r) for lines in self.blocks for line in lines
                 for r in re.findall(r"%(?:p|rs?|rd)\d+\b", line)}
        # What is read before it is written is of no account, but must be something.
        out = ["def thread(tid, memory, visits):", "  " + " = ".join([*sorted(names), "0"]),
               "  block = 0", "  while True:", "    visits[block] += 1"]
        self.halve(0, len(self.blocks), "    ", out)
        return "\n".join(out)

    def halve(self, first, end, pad, out):
        if end - first == 1:
            self.block(first, pad, out)
            return
        middle = (first + end) // 2
        out.append(f"{pad}if block < {middle}:")
        self.halve(first, middle, pad + " ", out)
        out.append(f"{pad}else:")
        self.halve(middle, end, pad + " ", out)

    def block(self, number, pad, out):
        goes_on = True
        for line in self.blocks[number]:
            jump = re.fullmatch(r"(?:@(!?)(%p\d+) )?bra(?:\.uni)?\s+(\$\w+)", line.replace("\t", " "))
            if jump:
                no, guard, label = jump.groups()
                target = self.labels[label]
                if guard:
                    test = f"not {self.value(guard)}" if no else self.value(guard)
                    out.append(f"{pad}block = {target} if {test} else {number + 1}")
                else:
                    out.append(f"{pad}block = {target}")
                goes_on = False
                continue
            if re.fullmatch(r"(ret|exit)", line):
                out.append(f"{pad}return")
                goes_on = False
                continue
            guard, statements = self.instruction(line)
            if guard:
                out.append(f"{pad}if {guard}:")
            out.extend(pad + (" " if guard else "") + s for s in statements)
        if goes_on:
            out.append(f"{pad}block = {number + 1}")


def meet(lanes, named):
    """The results of a warp's common operation, by lane."""
    what = lanes[named[0]][0]
    votes = sum(1 << i for i in named if lanes[i][2])
    if what in ("sync", "ballot", "any", "all"):
        whole = sum(1 << i for i in named)
        value = {"sync": 0, "ballot": votes, "any": int(votes != 0), "all": int(votes == whole)}[what]
        return {i: value for i in named}
    results = {}
    for i in named:
        _, _, value, (by, c) = lanes[i]
        clamp, segment = c & 31, c >> 8 & 31
        first, last = i & segment, (i & segment) | (clamp & ~segment)
        source = {"idx": (by & ~segment & 31) | first, "up": i - by, "down": i + by,
                  "bfly": i ^ by}[what]
        inside = source >= last if what == "up" else source <= last
        results[i] = lanes[source][2] if inside else value
    return results


def run(kernel, memory, params, shared_bytes):
    """Runs one block. Returns, from barrier to barrier, each warp's visits to each basic block: of the lane
    with most."""
    shared = bytearray(b"\xa5" * shared_bytes)
    visits = [[0] * len(kernel.blocks) for _ in range(THREADS)]
    threads = [
        kernel.thread(tid, [memory, shared, params, bytearray(kernel.local_bytes)], visits[tid])
        for tid in range(THREADS)
    ]
    said = [None] * THREADS
    answers = dict.fromkeys(range(THREADS))
    live, before, steps = THREADS, [[0] * len(kernel.blocks) for _ in range(THREADS)], []

    def step():
        new = [[now - then for now, then in zip(*of)] for of in zip(visits, before)]
        steps.append([[max(of) for of in zip(*new[warp:warp + WARP])] for warp in range(0, THREADS, WARP)])
        before[:] = [list(of_lane) for of_lane in visits]

    while live:
        assert answers, "threads that wait for each other"
        now, answers = answers, {}
        for tid, answer in now.items():
            try:
                said[tid] = threads[tid].send(answer)
            except StopIteration:
                said[tid] = None
                live -= 1
        for warp in range(0, THREADS, WARP):
            lanes = said[warp:warp + WARP]
            for mask in {s[1] for s in lanes if s and s[0] != "bar"}:
                named = [i for i in range(WARP) if mask >> i & 1]
                if all(lanes[i] and lanes[i][:2] == (lanes[named[0]][0], mask) for i in named):
                    for i, value in meet(lanes, named).items():
                        answers[warp + i] = value
                        said[warp + i] = None
        if live and not answers and all(s is None or s[0] == "bar" for s in said):
            waiting = [i for i in range(THREADS) if said[i]]
            assert len(waiting) == live, "a barrier without some threads"
            step()
            answers = dict.fromkeys(waiting)
            said = [None] * THREADS
    step()
    return steps


# ---------------------------------------------------------------------------------------------
# A batch in memory.


class Layout:
    """Sizes and offsets of the structures in gpu/kernels/layout.h."""

    SIZES = {"u8": 1, "u16": 2, "u32": 4, "u64": 8}

    def __init__(self, text):
        text = re.sub(r"//[^\n]*", "", text)
        self.numbers = {}
        for body in re.findall(r"enum : \w+ \{(.*?)\}", text, re.S):
            self.numbers |= {n: int(v) for n, v in re.findall(r"(\w+) = (\d+)", body)}
        self.size, self.align, self.fields = dict(self.SIZES), dict(self.SIZES), {}
        for align, name, body in re.findall(r"struct (?:alignas\((\d+)\) )?(\w+) \{(.*?)\n\};", text, re.S):
            at, most, fields = 0, int(align or 1), {}
            for kind, names in re.findall(r"(\w+) ([^;]+);", body):
                for field in names.split(","):
                    word, count = re.fullmatch(r"\s*(\w+)(?:\[(\w+)\])?", field).groups()
                    many = 1 if count is None else int(self.numbers.get(count, count))
                    own = self.align[kind]
                    at = (at + own - 1) // own * own
                    fields[word] = at, kind
                    at += self.size[kind] * many
                    most = max(most, own)
            self.size[name], self.align[name] = (at + most - 1) // most * most, most
            self.fields[name] = fields

    def put(self, memory, at, kind, **values):
        """Writes fields of a structure."""
        for name, value in values.items():
            offset, field = self.fields[kind][name]
            size = self.size[field]
            memory[at + offset:at + offset + size] = value.to_bytes(size, "little")

    def get(self, memory, at, kind, name):
        """Reads one."""
        offset, field = self.fields[kind][name]
        return int.from_bytes(memory[at + offset:at + offset + self.size[field]], "little")

    def at(self, kind, name):
        return self.fields[kind][name][0]


def siphash(k0, k1, data):
    """SipHash-1-3."""
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    turn = lambda x, n: (x << n | x >> (64 - n)) & M64  # noqa: E731

    def rounds(n):
        for _ in range(n):
            v[0] = v[0] + v[1] & M64
            v[2] = v[2] + v[3] & M64
            v[1], v[3] = turn(v[1], 13) ^ v[0], turn(v[3], 16) ^ v[2]
            v[0] = turn(v[0], 32)
            v[2] = v[2] + v[1] & M64
            v[0] = v[0] + v[3] & M64
            v[1], v[3] = turn(v[1], 17) ^ v[2], turn(v[3], 21) ^ v[0]
            v[2] = turn(v[2], 32)

    whole = len(data) // 8 * 8
    words = [int.from_bytes(data[i:i + 8], "little") for i in range(0, whole, 8)]
    words.append(int.from_bytes(data[whole:], "little") | (len(data) & 255) << 56)
    for word in words:
        v[3] ^= word
        rounds(1)
        v[0] ^= word
    v[2] ^= 255
    rounds(3)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


K0, K1, NOW = 0x0706050403020100, 0x0F0E0D0C0B0A0908, 77
SETS, BUCKETS = 1024, 1024
KEY_MAX = [16, 32, 64, 128, 250]


def key_of(i):
    """The i-th key, of 16 bytes."""
    return b"key-%012d" % (i * 7919)


def frame_of(text):
    """An Ethernet frame with IPv4 and UDP around a request. Sums are 0: they are known to be good."""
    udp = struct.pack(">HHHHHHHH", 40000, 11211, 16 + len(text), 0, 7, 0, 1, 0) + text
    ip = struct.pack(">BBHHHBBH8s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, bytes(8))
    return bytes(12) + b"\x08\x00" + ip + udp


def text_of(i, n, kind):
    """`(request, verdict, keys found, keys)` of the i-th request of a batch of this kind."""
    if kind != "plain" and i % 4 == 1:
        keys = [key_of((i + 17 * nth) % n) for nth in range(3)]
        several = (b"get " + b" ".join(keys) + b"\r\n", "READY", 3, 3)
        meta = (b"mg " + keys[0] + b" v t f\r\n", "STRICT_HINTED", 1, 1)
        gets = (b"gets " + keys[0] + b"\r\n", "READY", 1, 1)
        if kind == "mixed":
            return [several, meta, gets, (b"get nobody-knows-me1\r\n", "READY", 0, 1)][i // 4 % 4]
        head = struct.pack(">BBHBBHIIQ", 0x80, 0x0C, len(keys[0]), 0, 0, 0, len(keys[0]), 7, 9)
        return [
            several, meta, gets, (head + keys[0], "STRICT_HINTED", 1, 1), (b"get " + keys[0] + b"\n", "READY", 1, 1),
            (b"get " + keys[0] + b"\t\r\n", "SLOW", 0, 0), (b"", "BAD", 0, 0),
            (b"mn\r\n", "SLOW", 0, 0),
        ][i // 4 % 8]
    return b"get " + key_of(i) + b"\r\n", "READY", 1, 1


class Batch:
    """Memory with an index, 128 frames and what a launch needs."""

    def __init__(self, layout, n, kind, cuckoo):
        self.n = n
        self.layout, self.memory = layout, bytearray(8 << 20)
        self.top = 4096
        self.params = bytearray(layout.size["GetParams"])
        put, of = layout.put, layout.at
        packets, slot, arrived = self.take(n * SLOT_BYTES), self.take(layout.size["RingSlot"]), self.take(64)
        entries, self.descs = self.take(n * layout.size["Entry"]), self.take(n * layout.size["ReqDesc"])
        self.texts = [text_of(i, n, kind) for i in range(n)]
        for i, (text, _, _, _) in enumerate(self.texts):
            frame, at = frame_of(text), packets + i * SLOT_BYTES + FRAME_OFF
            self.memory[at:at + len(frame)] = frame
            put(self.memory, entries + i * layout.size["Entry"], "Entry", slot=i, off=FRAME_OFF, len=len(frame),
                l3=14, l4=34, flags=layout.numbers["ENTRY_IP_GOOD"] | layout.numbers["ENTRY_UDP_GOOD"])
        put(self.memory, slot, "Order", entries=entries, descs=self.descs, prebuilt=0, n=n, now=NOW, number=5)
        put(self.params, 0, "GetParams", ring_slot=slot, arrived=arrived)
        put(self.params, of("GetParams", "packets"), "PacketRegion", base=packets, slot_bytes=SLOT_BYTES, slots=n)
        index = of("GetParams", "index")
        put(self.params, index + of("Index", "key"), "HashKey", k0=K0, k1=K1)
        self.ring_slot = slot
        (self.fill_cuckoo if cuckoo else self.fill_setassoc)(index)

    def take(self, size):
        at = (self.top + 255) // 256 * 256
        self.top = at + size
        assert self.top < len(self.memory)
        return at

    def fill_setassoc(self, index):
        layout, put, memory = self.layout, self.layout.put, self.memory
        stride = (layout.size["Way"] + KEY_MAX[0] + 31) // 32 * 32
        for t, key_max in enumerate(KEY_MAX):
            sets, keys = self.take(SETS * layout.size["Set"]), self.take(SETS * 16 * stride if t == 0 else 0)
            table = index + layout.at("Index", "tables") + t * layout.size["SetTable"]
            put(self.params, table, "SetTable", sets=sets, keys=keys, n_sets=SETS, key_max=key_max)
            for i in range(self.n if t == 0 else 0):
                key = key_of(i)
                hashed = siphash(K0, K1, key)
                number = (hashed >> 32) * SETS >> 32
                one = sets + number * layout.size["Set"]
                way = next(w for w in range(16) if memory[one + w] == 0)
                memory[one + way] = hashed & 255 or 1
                where = one + layout.at("Set", "locations") + 4 * way
                memory[where:where + 4] = (1000 + i).to_bytes(4, "little")
                # Looked up within this second already, as keys in demand are.
                where = one + layout.at("Set", "stamps") + 2 * way
                memory[where:where + 2] = NOW.to_bytes(2, "little")
                where = keys + (number * 16 + way) * stride
                put(memory, where, "Way", flags=0, value_len=64, key_len=len(key))
                memory[where + layout.size["Way"]:where + layout.size["Way"] + len(key)] = key

    def fill_cuckoo(self, index):
        layout, memory = self.layout, self.memory
        buckets = self.take(BUCKETS * layout.size["Bucket"])
        layout.put(self.params, index + layout.at("Index", "cuckoo"), "CuckooTable", buckets=buckets,
                   n_buckets=BUCKETS, kicks_max=8)
        for i in range(self.n):
            hashed = siphash(K0, K1, key_of(i))
            one = buckets + (hashed & BUCKETS - 1) * layout.size["Bucket"]
            cell = next(one + 8 * c for c in range(8) if not any(memory[one + 8 * c:one + 8 * c + 8]))
            memory[cell:cell + 8] = ((hashed >> 32) << 32 | 1000 + i).to_bytes(8, "little")

    def check(self):
        """Whether the descriptors are right, but for where keys stand."""
        layout, memory = self.layout, self.memory
        assert layout.get(memory, self.ring_slot, "RingSlot", "done") == 5, "the batch was not finished"
        for i, (_, verdict, hits, keys) in enumerate(self.texts):
            at = self.descs + i * layout.size["ReqDesc"]
            assert memory[at] == layout.numbers[f"VERDICT_{verdict}"], f"request {i}: the verdict is {memory[at]}"
            assert memory[at + 3] == keys, f"request {i}: {memory[at + 3]} keys"
            for n in range(keys):
                key = at + layout.at("ReqDesc", "keys") + n * layout.size["KeyDesc"]
                hint = layout.get(memory, key, "KeyDesc", "hint")
                assert hint == layout.numbers["HINT_HIT" if hits else "HINT_MISS"], f"request {i}: hint {hint}"
                place = layout.get(memory, key, "KeyDesc", "location")
                assert not hits or place == 1000 + (i + 17 * n) % self.n, f"request {i}: location {place}"


def sizes(kernel):
    """Instructions of each basic block."""
    return [len(lines) for lines in kernel.blocks]


def count(kernel, layout, n, kind):
    """Instructions of each warp over a batch, from barrier to barrier."""
    batch = Batch(layout, n, kind, "cuckoo" in kernel.name)
    assert kernel.param_bytes == len(batch.params), "parameters are not those of layout.h"
    steps = run(kernel, batch.memory, batch.params, layout.numbers["GET_SHARED_BYTES"])
    batch.check()
    size = sizes(kernel)
    return [[sum(map(int.__mul__, of_warp, size)) for of_warp in step] for step in steps], steps


def measure():
    """What there is to compare: numbers by name."""
    layout = Layout((ROOT / "gpu/kernels/layout.h").read_text())
    numbers = {}
    for name in ("get_setassoc", "get_cuckoo"):
        kernel = Kernel((ROOT / f"gpu/ptx/{name}.ptx").read_text())
        of = {}
        batches = ("small-", SMALL, "plain"), ("", FULL, "plain"), ("mixed-", FULL, "mixed"), ("varied-", FULL, "varied")
        for what, n, kind in batches:
            steps, _ = count(kernel, layout, n, kind)
            warps = [sum(of_warp) for of_warp in zip(*steps)]
            # Even warps are main, odd ones helpers.
            of |= {f"{what}main": max(warps[0::2]), f"{what}helper": max(warps[1::2]),
                   f"{what}path": sum(map(max, steps))}
        for what in ("mixed", "varied"):
            busiest = max(of[f"{what}-main"], of[f"{what}-helper"])
            of[f"{what}-main-percent"] = of[f"{what}-main"] * 100 // of["main"]
            of[f"{what}-busiest-percent"] = busiest * 100 // max(of["main"], of["helper"])
            of[f"{what}-path-percent"] = of[f"{what}-path"] * 100 // of["path"]
        numbers |= {f"{name}-{what}": number for what, number in of.items()}
    return numbers


def show_blocks(name, warp):
    """Where a warp's instructions are: of the plain batch for warp 0, of the mixed one for others."""
    layout = Layout((ROOT / "gpu/kernels/layout.h").read_text())
    kernel = Kernel((ROOT / f"gpu/ptx/{name}.ptx").read_text())
    _, steps = count(kernel, layout, SMALL if warp == 0 else FULL, "mixed" if warp else "plain")
    for number, lines in enumerate(kernel.blocks):
        times = [step[warp][number] for step in steps]
        if any(times):
            print(f"-- {number}: {times} times {len(lines)}")
            print("\n".join("   " + line for line in lines))


def main(argv):
    """Does what the command line says."""
    if argv[1:2] == ["--blocks"] and len(argv) == 4:
        show_blocks(argv[2], int(argv[3]))
        return 0
    if argv[1:] not in ([], ["--update"]):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    numbers = measure()
    if argv[1:]:
        lines = "".join(f"{name} = {n}\n" for name, n in numbers.items())
        BUDGET.write_text(
            "# Instructions of PTX that warps of the GET kernels spend on a batch: written by\n"
            "# scripts/kernel_instructions.py --update, which says what is counted.\n\n"
            f"[instructions]\n{lines}"
        )
        print(lines, end="")
        return 0
    budget = tomllib.loads(BUDGET.read_text())["instructions"]
    wrong = 0
    for name, n in numbers.items():
        verdict = "" if n <= budget.get(name, 0) else ": too many"
        print(f"{name}: {n}, budget {budget.get(name, 0)}{verdict}")
        wrong += bool(verdict)
    print(f"{len(numbers) - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))

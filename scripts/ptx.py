#!/usr/bin/env python3
"""Makes gpu/ptx/*.ptx of gpu/kernels/*.cu and gpu/cubin/*.cubin of these, or looks whether they are what
the sources make.

    scripts/ptx.py make      writes them
    scripts/ptx.py check     compares, and assembles them for real cards; the last line counts

The compiler is NVIDIA's NVRTC, the assembler ptxas, both from the package registry as
gpu/ptx/requirements.txt pins them, installed under target/. No GPU, driver or toolkit is needed.
The same sources give the same bytes on every machine.
"""

import ctypes
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNELS = ROOT / "gpu/kernels"
PTX = ROOT / "gpu/ptx"
CUBIN = ROOT / "gpu/cubin"
REQUIREMENTS = PTX / "requirements.txt"
TOOLS = ROOT / "target/ptx"

BASE = "compute_75"
"""What the PTX asks of a card: Turing or newer. The driver compiles it for the card there is."""

CUBIN_CARD = "sm_90"
"""What the cubins are for: they run there as they are, and nowhere else."""

CARDS = ["sm_75", "sm_80", "sm_90", "sm_100"]
"""What it is assembled for here: Turing, Ampere, Hopper, Blackwell."""

REGISTERS_MAX = 64
"""Registers of a thread: with more, a multiprocessor runs fewer blocks than launches count on."""

STACK_MAX = 128
"""Bytes of local memory of a thread."""

OPTIONS = [
    f"--gpu-architecture={BASE}",
    "--std=c++20",
]


class Failure(Exception):
    """What went wrong, for people."""


def install():
    """The pinned tools under target/, once for each state of requirements.txt."""
    made_from = TOOLS / "made-from"
    wanted = REQUIREMENTS.read_bytes()
    if made_from.exists() and made_from.read_bytes() == wanted:
        return
    shutil.rmtree(TOOLS, ignore_errors=True)
    TOOLS.mkdir(parents=True)
    venv, pip = TOOLS / "venv", TOOLS / "venv/bin/pip"
    for command in (
        [sys.executable, "-m", "venv", venv],
        [pip, "install", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:",
         "--require-hashes", "--no-compile", "--target", TOOLS / "site", "-r", REQUIREMENTS],
    ):
        try:
            subprocess.run(command, check=True, timeout=400, capture_output=True, text=True)
        except subprocess.CalledProcessError as e:
            raise Failure(f"the compiler cannot be installed; {command[0]} says:\n{e.stderr}") from e
        except (OSError, subprocess.TimeoutExpired) as e:
            raise Failure(f"the compiler cannot be installed: {e}") from e
    made_from.write_bytes(wanted)


class Nvrtc:
    """NVIDIA's compiler from CUDA C++ to PTX, as a library."""

    def __init__(self):
        libraries = TOOLS / "site/nvidia/cuda_nvrtc/lib"
        # The compiler opens this one by its name; it is found once it is loaded.
        builtins = next(libraries.glob("libnvrtc-builtins.so.*"))
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(libraries / "libnvrtc.so.12"))
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name, *args):
        """Calls a function; its status, if it is not 0, as a failure."""
        status = getattr(self.library, name)(*args)
        if status != 0:
            said = self.library.nvrtcGetErrorString(status)
            raise Failure(f"{name}: {said.decode()}")

    def text(self, what, program):
        """The text that nvrtcGet`what` gives, without the zero at its end."""
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, buffer)
        return buffer.value.decode()

    def compile(self, source, headers):
        """The PTX of one source. `headers` are all that it may include, by name."""
        program = ctypes.c_void_p()
        texts = (ctypes.c_char_p * len(headers))(*[h.read_bytes() for h in headers])
        names = (ctypes.c_char_p * len(headers))(*[h.name.encode() for h in headers])
        self.call(
            "nvrtcCreateProgram", ctypes.byref(program), source.read_bytes(), source.name.encode(),
            len(headers), texts, names,
        )
        options = (ctypes.c_char_p * len(OPTIONS))(*[o.encode() for o in OPTIONS])
        try:
            status = self.library.nvrtcCompileProgram(program, len(OPTIONS), options)
            log = self.text("ProgramLog", program).strip()
            if status != 0 or log:
                raise Failure(f"{source.name} does not compile without complaint:\n{log}")
            return self.text("PTX", program)
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))


def compile_all():
    """PTX of every source, by the name of its file."""
    nvrtc = Nvrtc()
    headers = sorted(KERNELS.glob("*.h"))
    sources = sorted(KERNELS.glob("*.cu"))
    return {f"{s.stem}.ptx": nvrtc.compile(s, headers) for s in sources}


def make():
    """Writes what the sources make, and takes away what no source makes any more."""
    made = compile_all()
    for old in PTX.glob("*.ptx"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (PTX / name).write_text(text, encoding="utf-8")
    CUBIN.mkdir(exist_ok=True)
    for old in CUBIN.glob("*.cubin"):
        if f"{old.stem}.ptx" not in made:
            old.unlink()
    for name in made:
        _, cubin = assemble(PTX / name, CUBIN_CARD)
        (CUBIN / name).with_suffix(".cubin").write_bytes(cubin)
    for place in (PTX, CUBIN):
        print(f"{len(made)} files written to {place.relative_to(ROOT)}")


PROPERTIES = re.compile(
    r"Function properties for (?P<kernel>\w+)\n"
    r"\s*(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, "
    r"(?P<loads>\d+) bytes spill loads\n"
    r"ptxas info\s*: Used (?P<registers>\d+) registers(?P<rest>[^\n]*)"
)
"""What `ptxas -v` says of a kernel."""


def properties(said):
    """`(kernel, registers, shared bytes, stack bytes, spilled bytes)` of each kernel in `said`."""
    for match in PROPERTIES.finditer(said):
        shared = re.search(r"(\d+) bytes smem", match["rest"])
        spilled = int(match["stores"]) + int(match["loads"])
        yield (
            match["kernel"], int(match["registers"]), int(shared[1]) if shared else 0,
            int(match["stack"]), spilled,
        )


def assemble(path, card):
    """What ptxas says of a file for one kind of card, and what it makes of it."""
    ptxas = TOOLS / "site/nvidia/cuda_nvcc/bin/ptxas"
    with tempfile.TemporaryDirectory() as place:
        cubin = Path(place) / "cubin"
        command = [ptxas, "-v", f"-arch={card}", "-o", cubin, path]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            raise Failure(f"ptxas refuses {path.name} for {card}:\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr, cubin.read_bytes()


def check():
    """Whether the committed files are the sources' and need no more than a card has."""
    wrong, passed = [], 0
    made = compile_all()
    there = {p.name: p.read_text(encoding="utf-8") for p in PTX.glob("*.ptx")}
    for name in sorted(made.keys() | there.keys()):
        if made.get(name) == there.get(name):
            passed += 1
        else:
            wrong.append(f"gpu/ptx/{name} is not what the sources make: scripts/ptx.py make")
    for name in sorted(there):
        for card in CARDS:
            said, cubin = assemble(PTX / name, card)
            found = list(properties(said))
            entries = len(re.findall(r"\.entry ", there[name]))
            if len(found) != entries:
                wrong.append(f"ptxas says nothing of some of {name}'s {entries} kernels for {card}")
            if card == CUBIN_CARD:
                committed = (CUBIN / name).with_suffix(".cubin")
                if committed.exists() and committed.read_bytes() == cubin:
                    passed += 1
                else:
                    wrong.append(f"{committed.relative_to(ROOT)} is not what the sources make: scripts/ptx.py make")
            for kernel, registers, shared, stack, spilled in found:
                print(f"{kernel:24} {card:7} {registers:3} registers, {shared} B shared, "
                      f"{stack} B stack, {spilled} B spilled")
                faults = [
                    fault for fault, there in (
                        ("spills registers", spilled),
                        (f"needs more than {REGISTERS_MAX} registers", registers > REGISTERS_MAX),
                        (f"keeps more than {STACK_MAX} B in local memory", stack > STACK_MAX),
                    ) if there
                ]
                wrong += [f"{kernel} {fault} on {card}" for fault in faults]
                passed += not faults
    for cubin in CUBIN.glob("*.cubin"):
        if f"{cubin.stem}.ptx" not in made:
            wrong.append(f"{cubin.relative_to(ROOT)} has no source: scripts/ptx.py make")
    for line in wrong:
        print(line)
    print(f"{passed} passed, {len(wrong)} failed")
    return not wrong


def main(argv):
    """Does what the command line says."""
    if len(argv) != 2 or argv[1] not in ("make", "check"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    try:
        install()
        if argv[1] == "make":
            make()
            return 0
        return 0 if check() else 1
    except (Failure, OSError, StopIteration, subprocess.TimeoutExpired) as e:
        print(f"ptx: {e}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv))

#!/usr/bin/env python3
"""Puts the shared libraries and DPDK drivers that programs need beside them.

    scripts/dist/bundle.py TREE

In: TREE/bin with the programs. Out: TREE/lib with every library that they and DPDK's network
drivers load, but for the C and C++ libraries, which every Debian has; TREE/lib/gnomon/pmds, where
gnomon looks for drivers; TREE/share/doc/gnomon/libraries with the libraries' licences. The programs
find TREE/lib by a path relative to themselves, wherever TREE is.

Fails, with a word why, where a library is missing or belongs to no package.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

DRIVERS = ("bus", "mempool", "net")
"""Kinds of DPDK drivers that a port can need. What these need in turn comes along."""

EVERYWHERE = {"libc6", "libgcc-s1", "libstdc++6"}
"""Packages that no Debian is without, and that must be the machine's own."""


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def driver_dir():
    """The directory that this machine's DPDK loads drivers from, as DPDK was told it."""
    libraries = Path(output("pkg-config", "--variable=libdir", "libdpdk").strip())
    found = sorted(libraries.glob("dpdk/pmds-*"))
    if len(found) != 1:
        sys.exit(f"bundle: {len(found)} directories pmds-* in {libraries}/dpdk, one is wanted")
    return found[0]


def needed(files):
    """Name and place of every library that the loader would load for these files."""
    libraries = {}
    for line in output("ldd", *map(str, files)).splitlines():
        name, arrow, place = line.strip().partition(" => ")
        if arrow and place.startswith("not found"):
            sys.exit(f"bundle: no library {name}")
        if arrow and place.startswith("/"):
            libraries[name] = Path(place.split(" (")[0])
    return libraries


def packages_of(libraries):
    """The package that each library came with."""
    # Debian's own list may still lack /usr before /lib: each is looked for both ways.
    real = {library: os.path.realpath(library) for library in libraries}
    asked = sorted({name for path in real.values() for name in (path, path.removeprefix("/usr"))})
    found = subprocess.run(["dpkg", "-S", *asked], capture_output=True, text=True, check=False).stdout
    owner = {path: owners.split(":")[0] for owners, path in (line.split(": ", 1) for line in found.splitlines())}
    packages = {}
    for library, path in real.items():
        packages[library] = owner.get(path) or owner.get(path.removeprefix("/usr"))
        if not packages[library]:
            sys.exit(f"bundle: {library} belongs to no package")
    return packages


def without_default_drivers(library, drivers):
    """Makes this copy of DPDK load the drivers that it is told, and none of the machine's.

    Drivers of another copy of DPDK beside ours would be two of each.
    """
    content = library.read_bytes()
    before = b"\0" + str(drivers).encode() + b"\0"
    if content.count(before) != 1:
        sys.exit(f"bundle: {library.name} does not name {drivers} once")
    library.write_bytes(content.replace(before, bytes(len(before))))


def main(tree):
    drivers = driver_dir()
    plugins = [p for kind in DRIVERS for p in sorted(drivers.glob(f"librte_{kind}_*.so.*"))]
    # Each is there under two names, `.so.23` and `.so.23.0`; libraries ask for the shorter.
    plugins = [p for p in plugins if p.name.split(".so.")[1].count(".") == 0]
    libraries = needed([*sorted((tree / "bin").iterdir()), *plugins])
    libraries.update((p.name, p) for p in plugins)

    lib, pmds = tree / "lib", tree / "lib/gnomon/pmds"
    licences = tree / "share/doc/gnomon/libraries"
    pmds.mkdir(parents=True)
    licences.mkdir(parents=True)
    packages = packages_of(libraries.values())
    for name, place in sorted(libraries.items()):
        package = packages[place]
        if package in EVERYWHERE:
            continue
        shutil.copyfile(place, lib / name)
        shutil.copyfile(f"/usr/share/doc/{package}/copyright", licences / f"{package}.copyright")
    for plugin in plugins:
        # Of the names that libraries have, DPDK takes this one for a driver's.
        (pmds / plugin.name.split(".so.")[0]).with_suffix(".so").symlink_to(f"../../{plugin.name}")
    for eal in lib.glob("librte_eal.so.*"):
        without_default_drivers(eal, drivers)
    # The old kind of path, DT_RPATH, holds for what libraries load in turn as well.
    for program in sorted((tree / "bin").iterdir()):
        output("patchelf", "--force-rpath", "--set-rpath", "$ORIGIN/../lib", str(program))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

#!/usr/bin/env python3
"""Writes the bill of materials of the programs: CycloneDX 1.6, as JSON.

    scripts/dist/sbom.py [TREE] > gnomon.cdx.json

Names the crates that end up in the programs, with the registry's checksums, and DPDK. With the TREE that
bundle.py has filled, also the Debian packages whose libraries lie in it. The time is SOURCE_DATE_EPOCH's.
"""

import datetime
import json
import os
import sys
import tomllib
from pathlib import Path
from urllib.parse import quote

from bundle import output
from notices import crates


def crate(package, checksums):
    """A crate as a component."""
    name, version = package["name"], package["version"]
    component = library(name, version, f"pkg:cargo/{name}@{version}")
    if package["license"]:
        # Before 2018 a slash stood for OR.
        expression = " OR ".join(part.strip() for part in package["license"].split("/"))
        component["licenses"] = [{"expression": expression}]
    checksum = checksums.get((name, version))
    if checksum:
        component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return component


def debian(package):
    """A Debian package of this machine as a component."""
    version, architecture = output("dpkg-query", "-Wf", "${Version} ${Architecture}", package).split()
    quoted = quote(version, safe="")
    return library(package, version, f"pkg:deb/debian/{package}@{quoted}?arch={architecture}")


def library(name, version, purl):
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def main(trees):
    with open("Cargo.lock", "rb") as file:
        locked = tomllib.load(file)["package"]
    with open("Cargo.toml", "rb") as file:
        version = tomllib.load(file)["workspace"]["package"]["version"]
    checksums = {(p["name"], p["version"]): p.get("checksum") for p in locked}
    components = [crate(package, checksums) for package in crates()]
    dpdk = output("pkg-config", "--modversion", "libdpdk").strip()
    components.append(library("dpdk", dpdk, f"pkg:generic/dpdk@{dpdk}"))
    for tree in trees:
        copyrights = sorted(Path(tree, "share/doc/gnomon/libraries").glob("*.copyright"))
        components += [debian(file.name.removesuffix(".copyright")) for file in copyrights]
    time = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    program = {"type": "application", "bom-ref": "gnomon", "name": "gnomon", "version": version}
    bom = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"timestamp": time.isoformat(), "component": program},
        "components": components,
    }
    json.dump(bom, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main(sys.argv[1:])

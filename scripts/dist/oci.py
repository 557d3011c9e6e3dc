#!/usr/bin/env python3
"""Makes a container image of the archive's tree, without a daemon and without a network.

    scripts/dist/oci.py TREE VERSION REVISION EPOCH OUT

In: TREE, the archive unpacked; the release, the commit and the time in seconds that the image says it
has. Out: OUT, a tar file that is both an OCI image layout (image-spec 1.0: podman load, skopeo,
crane) and what `docker save` writes (docker load). One layer: the program, the libraries and DPDK drivers
of TREE, and the C and C++ libraries that an archive leaves to the machine. No shell, no package manager.
The same TREE, libraries and arguments make the same bytes.
"""

import gzip
import hashlib
import io
import json
import os
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import bundle

NOBODY = 65532
"""User and group that the service runs as, by the number that images without a shell share."""

ENVIRONMENT = {
    "PATH": "/usr/bin",
    "GNOMON_LISTEN": "*",
    "GNOMON_METRICS": "*:9150",
}
"""A container's network is its own, so the service is on all of its addresses. Flags win."""

ACCOUNTS = {
    "etc/passwd": f"root:x:0:0:root:/:/sbin/nologin\ngnomon:x:{NOBODY}:{NOBODY}:gnomon:/:/sbin/nologin\n",
    "etc/group": f"root:x:0:\ngnomon:x:{NOBODY}:\n",
}


def files_of(tree):
    """Path in the image -> bytes or, for a symbolic link, the path that it leads to."""
    files = {path: text.encode() for path, text in ACCOUNTS.items()}
    files |= {"lib64": Path("usr/lib64"), "lib": Path("usr/lib")}
    files["usr/bin/gnomon"] = (tree / "bin/gnomon").read_bytes()
    for below in ("lib", "share/doc/gnomon/libraries"):
        for path in sorted((tree / below).rglob("*")):
            name = f"usr/{path.relative_to(tree)}"
            if path.is_symlink():
                files[name] = path.readlink()
            elif path.is_file():
                files[name] = path.read_bytes()
    files["usr/share/doc/gnomon/NOTICES.gz"] = (tree / "share/doc/gnomon/NOTICES.gz").read_bytes()

    # What the archive leaves to the machine, and the loader, which the program names by its path.
    programs = [tree / "bin/gnomon", *(p for p in sorted((tree / "lib").iterdir()) if p.is_file())]
    libraries = {name: place for name, place in bundle.needed(programs).items() if tree not in place.parents}
    loader = Path("/lib64/ld-linux-x86-64.so.2")
    for name, place in sorted(libraries.items()):
        files[f"usr/lib/{name}"] = place.read_bytes()
    files[f"usr{loader}"] = loader.read_bytes()
    for package in sorted(set(bundle.packages_of([*libraries.values(), loader]).values())):
        copyright_file = Path("/usr/share/doc") / package / "copyright"
        files[f"usr/share/doc/gnomon/libraries/{package}.copyright"] = copyright_file.read_bytes()
    return files


def archive(files, epoch):
    """A tar file whose bytes depend on nothing but `files` and `epoch`."""
    directories = {str(parent) for path in files for parent in Path(path).parents} - {"."}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(directories | set(files)):
            entry = tarfile.TarInfo(path)
            entry.mtime, content = epoch, files.get(path)
            if content is None:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            elif isinstance(content, Path):
                entry.type, entry.linkname = tarfile.SYMTYPE, str(content)
            else:
                executable = path.startswith(("usr/bin/", "usr/lib64/"))
                entry.size, entry.mode = len(content), 0o755 if executable else 0o644
            tar.addfile(entry, io.BytesIO(content) if isinstance(content, bytes) else None)
    return out.getvalue()


def digest(content):
    return hashlib.sha256(content).hexdigest()


def packed(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def main(tree, version, revision, epoch, out):
    layer = archive(files_of(tree), epoch)
    compressed = gzip.compress(layer, 9, mtime=0)
    created = datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {
        "org.opencontainers.image.title": "gnomon",
        "org.opencontainers.image.description": "a kernel-bypass, memcached-compatible key-value appliance",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.revision": revision,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
    }
    config = packed({
        "architecture": "amd64",
        "os": "linux",
        "created": created,
        "config": {
            "User": f"{NOBODY}:{NOBODY}",
            "Env": [f"{name}={value}" for name, value in ENVIRONMENT.items()],
            # Arguments are flags of the service, as they are of memcached's image.
            "Entrypoint": ["/usr/bin/gnomon", "serve"],
            "ExposedPorts": {"11211/tcp": {}, "11211/udp": {}, "9150/tcp": {}},
            "StopSignal": "SIGTERM",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest(layer)}"]},
        "history": [{"created": created, "created_by": "scripts/dist/oci.py"}],
    })

    def descriptor(kind, content):
        media_type = f"application/vnd.oci.image.{kind}"
        return {"mediaType": media_type, "digest": f"sha256:{digest(content)}", "size": len(content)}

    manifest = packed({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("config.v1+json", config),
        "layers": [descriptor("layer.v1.tar+gzip", compressed)],
        "annotations": labels,
    })
    name = {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": f"localhost/gnomon:{version}"}
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [descriptor("manifest.v1+json", manifest) | {"annotations": name}],
    }
    files = {f"blobs/sha256/{digest(blob)}": blob for blob in (compressed, config, manifest)}
    files["oci-layout"] = packed({"imageLayoutVersion": "1.0.0"})
    files["index.json"] = packed(index)
    saved = {
        "Config": f"blobs/sha256/{digest(config)}",
        "RepoTags": [f"localhost/gnomon:{version}"],
        "Layers": [f"blobs/sha256/{digest(compressed)}"],
    }
    files["manifest.json"] = packed([saved])
    partial = out.with_name(f"{out.name}.new")
    partial.write_bytes(archive(files, epoch))
    os.replace(partial, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), Path(sys.argv[5]))

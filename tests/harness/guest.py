"""A QEMU guest that is Debian's kernel and, over 9p, the files of this machine. Software emulation only: a guest
under KVM within a guest is not to be relied upon."""

import fcntl
import pathlib
import re
import shutil

from harness.namespaces import must

CACHE = pathlib.Path("target/netem")
NIC_MAC = "02:00:00:00:77:01"
CABLE = "virtio_pci virtio_net 9p 9pnet_virtio"

INIT = """#!/bin/busybox sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
modprobe -a {modules}
mount -t 9p -o trans=virtio,version=9p2000.L,msize=131072,ro host /host
for there in proc dev sys; do mount -o bind /$there /host/$there; done
here() {{ chroot /host "$@"; }}
word() {{ sed -n "s/.* $1=\\([^ ]*\\).*/\\1/p" /proc/cmdline; }}
{does}
poweroff -f
"""

FETCH = """set -e
cd "$1"
apt-get download "linux-image-$2"
dpkg-deb -x linux-image-*.deb fetched
busybox depmod -b fetched "$2"
mv "fetched/boot/vmlinuz-$2" "fetched/lib/modules/$2/vmlinuz"
"""


def kernel_there(scratch):
    """Debian's newest kernel with its modules, fetched once from the mirror that apt has. Its folder."""
    depends = must("apt-cache", "depends", "linux-image-amd64")
    version = re.search(r"Depends: linux-image-(\S+)", depends)[1]
    folder = CACHE / version
    CACHE.mkdir(parents=True, exist_ok=True)
    # Tests run side by side.
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "modules.dep").exists():
            must("bash", "-c", FETCH, "bash", scratch, version)
            shutil.rmtree(folder, ignore_errors=True)
            shutil.move(scratch / "fetched/lib/modules" / version, CACHE / f"{version}.new")
            (CACHE / f"{version}.new").rename(folder)
    return folder


class Guest:
    """The kernel and a first file system with those modules. `does` is what the guest does once it has them and the
    files: `here PROGRAM` runs one of this machine's by its path (by its name busybox would take its own), `word NAME`
    is a word of the kernel's command line."""

    def __init__(self, check, scratch, modules, does):
        modules = f"{CABLE} {modules}"
        self.check, self.scratch, self.said = check, scratch, ""
        with check.named("the guest is made"):
            folder = kernel_there(scratch)
            self.vmlinuz = folder / "vmlinuz"
            root = scratch / "root"
            there = root / "lib/modules" / folder.name
            for name in ("bin", "proc", "sys", "dev", "host"):
                (root / name).mkdir(parents=True)
            there.mkdir(parents=True)
            shutil.copy(shutil.which("busybox"), root / "bin/busybox")
            wanted = {f"{module}.ko" for module in modules.split()}
            lines = (folder / "modules.dep").read_text().splitlines()
            kept = [line for line in lines if pathlib.PurePath(line.partition(":")[0]).name in wanted]
            (there / "modules.dep").write_text("".join(f"{line}\n" for line in kept))
            for path in {path for line in kept for path in line.replace(":", "").split()}:
                (there / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(folder / path, there / path)
            (root / "init").write_text(INIT.format(modules=modules, does=does))
            (root / "init").chmod(0o755)
            must("sh", "-c", f"cd {root} && find . | busybox cpio -o -H newc | gzip -1 >{scratch}/initrd")

    def runs(self, place, who, seconds, tap="gtap0", mac=NIC_MAC):
        """Boots it in the namespace, with its NIC on that TAP device; it does what it has to and ends, or is ended.
        Whether it ended by itself, and what it said."""
        console = self.scratch / f"console-{who}"
        plain = "csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,host_tso4=off,host_tso6=off"
        words = f"""timeout {seconds} qemu-system-x86_64 -nodefaults -no-user-config -no-reboot -display none
            -machine q35 -accel tcg,thread=multi -cpu Westmere -smp 1 -m 512
            -kernel {self.vmlinuz} -initrd {self.scratch}/initrd
            -chardev file,id=console,path={console} -serial chardev:console
            -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on
            -netdev tap,id=cable,ifname={tap},script=no,downscript=no
            -device virtio-net-pci,netdev=cable,mac={mac},{plain}"""
        line = f"console=ttyS0 quiet panic=-1 no_timer_check mitigations=off who={who}"
        done = place.run(*words.split(), "-append", line)
        said = console.read_text(errors="replace") if console.exists() else ""
        return done, said.replace("\r", "")

    def asks(self, place, who, seconds=1800):
        """Checks: it ends, and what it checked. What it said is in `said`."""
        done, self.said = self.runs(place, who, seconds)
        why = f"exit status {done.returncode}\n{done.stdout}\n{self.said[-4000:]}"
        self.check("the guest ends", done.returncode == 0, why)
        self.check.lines(line for line in self.said.splitlines() if line.startswith(("ok ", "FAILED ")))

    def says(self, pattern):
        """The lines that match."""
        return re.findall(pattern, self.said, re.MULTILINE)

    def told(self):
        """What it said, if anything failed."""
        if self.check.failed:
            self.check.note("\n".join(f"        | {line}" for line in self.said.splitlines()[-40:]))


def tap(place, device="gtap0"):
    """The guest's cable."""
    place.ip(f"tuntap add dev {device} mode tap")

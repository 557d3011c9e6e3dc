#!/usr/bin/env bash
# target/image/: the appliance as a disk image, and the kernel and initrd for booting it otherwise.
# Debian's packages, nothing compiled but gnomon; no loop device, mount or partition scan.
#
#   scripts/image.sh [qcow2] [raw]            default: both
#
#   gnomon.raw, gnomon.qcow2    boot from disk by BIOS and UEFI, to a gnomon that serves
#   vmlinuz, initrd.img         the same kernel, with root=LABEL=gnomon and that disk
#   command-line                what the kernel is told by the disk's own boot loader
#
#   IMAGE_DIR            where to write                          target/image
#   IMAGE_MB             size of the disk                        2048
#   IMAGE_PACKAGES       more packages, such as openssh-server
#   IMAGE_OVERLAY        a directory whose files go on top: gnomon.conf, keys, network
#   GNOMON, GNOMON_HUGE_PAGES, GNOMON_PARAMETERS: see scripts/appliance_setup.sh
#
# The packages are fetched from the mirror that apt has on this machine, once for each list of them.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

suite=bookworm
out=${IMAGE_DIR:-target/image}
cache=target/image-packages
size_mb=${IMAGE_MB:-2048}
[ "$#" -gt 0 ] || set -- qcow2 raw
make_scratch
if [ "$(id -u)" -ne 0 ]; then
  echo "image: files of a root file system have owners: run it as root" >&2
  exit 1
fi
scripts/provision.sh
mkdir -p "$out" "$cache"

# --- packages ---------------------------------------------------------------------------------------

packages=(systemd-sysv udev kmod iproute2 zstd initramfs-tools linux-image-amd64)
# DPDK's drivers are plug-ins: nothing that gnomon links to asks for them.
packages+=(librte-meta-net librte-meta-mempool librte-meta-bus)
# shellcheck disable=SC2206 # a list
packages+=(${IMAGE_PACKAGES:-})
# Modules that a server in a rack has no use for, and pages for readers.
left_out=(/usr/share/doc /usr/share/man /usr/share/locale)
left_out+=('/lib/modules/*/kernel/sound' '/lib/modules/*/kernel/drivers/media')
left_out+=('/lib/modules/*/kernel/drivers/net/wireless' '/lib/modules/*/kernel/drivers/staging')

make_base() {
  local options=() sources=() path
  for path in "${left_out[@]}"; do
    options+=(--dpkgopt="path-exclude=$path/*")
  done
  # The machine's own mirror, where it runs the same release.
  mapfile -t sources < <(grep -ls "$suite" /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources)
  mmdebstrap --quiet --mode=root --variant=minbase --components=main --aptopt='Acquire::Retries "3"' \
    "${options[@]}" --include="$(IFS=,; echo "${packages[*]}")" "$suite" "$1" "${sources[@]}"
}

key=$(printf '%s\n' "$suite" "${packages[@]}" "${left_out[@]}" | sha256sum | cut -c1-12)
base=$cache/$key.tar
if [ ! -e "$base" ]; then
  echo "image: fetching and installing packages (once for each list of them)"
  rm -f "$cache"/*.tar
  make_base "$base.part.tar"
  mv "$base.part.tar" "$base"
fi

# --- the root file system ---------------------------------------------------------------------------

tree=$out/root
rm -rf "$tree"
mkdir -p "$tree"
undo rm -rf "$tree"
tar -C "$tree" -xpf "$base"
scripts/appliance_setup.sh "$tree"
echo gnomon >"$tree/etc/hostname"
: >"$tree/etc/machine-id"
# A NIC that stays with the kernel, for the operator. Serving does not wait for it.
cat >"$tree/etc/systemd/network/80-dhcp.network" <<'END'
[Match]
Name=en* eth*
[Network]
DHCP=yes
END
systemctl --root="$tree" enable --quiet systemd-networkd.service
systemctl --root="$tree" disable --quiet systemd-networkd-wait-online.service
# Work that has nothing to do with serving, some of it at hours of its own choice.
systemctl --root="$tree" mask --quiet apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
  e2scrub_all.timer e2scrub_reap.service getty-static.service
systemctl --root="$tree" set-default --quiet multi-user.target
[ -z "${IMAGE_OVERLAY:-}" ] || cp -a "$IMAGE_OVERLAY/." "$tree/"

kernel=$(basename "$(echo "$tree"/boot/vmlinuz-*)")
version=${kernel#vmlinuz-}
install -m 644 "$tree/boot/vmlinuz-$version" "$out/vmlinuz"
install -m 644 "$tree/boot/initrd.img-$version" "$out/initrd.img"
parameters=$(GRUB_CMDLINE_LINUX="" sh -c '. "$1" && echo "$GRUB_CMDLINE_LINUX"' sh "$tree/etc/default/grub.d/gnomon.cfg")
echo "root=LABEL=gnomon rw console=tty0 console=ttyS0,115200$parameters" >"$out/command-line"
mkdir -p "$tree/boot/grub"
cat >"$tree/boot/grub/grub.cfg" <<END
serial --unit=0 --speed=115200
terminal_input console serial
terminal_output console serial
set timeout=1
menuentry gnomon {
  linux /boot/vmlinuz-$version $(cat "$out/command-line")
  initrd /boot/initrd.img-$version
}
END

# --- the disk ---------------------------------------------------------------------------------------

disk=$out/gnomon.raw
# In sectors of 512 bytes: GRUB for the BIOS, GRUB for UEFI, everything else.
bios_at=2048 efi_at=4096 root_at=69632
root_end=$((size_mb * 2048 - 2048))
rm -f "$disk"
truncate -s "${size_mb}M" "$disk"
sfdisk -q "$disk" <<END
label: gpt
start=$bios_at, size=$((efi_at - bios_at)), type=21686148-6449-6E6F-744E-656564454649
start=$efi_at, size=$((root_at - efi_at)), type=U
start=$root_at, size=$((root_end - root_at)), type=L
END
mke2fs -q -t ext4 -L gnomon -E "offset=$((root_at * 512))" -d "$tree" "$disk" "$(((root_end - root_at) / 2))k"

# poke FILE OFFSET: standard input over the bytes there.
poke() {
  dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# Both GRUBs have all that they need built in, and find the root by its label.
printf '%s\n' 'search --no-floppy --label gnomon --set root' 'configfile /boot/grub/grub.cfg' >"$scratch/grub.cfg"
modules=(part_gpt ext2 search search_label normal configfile linux serial terminal echo)
grub-mkimage -O i386-pc -p /boot/grub -c "$scratch/grub.cfg" -o "$scratch/core.img" biosdisk "${modules[@]}"
# The BIOS loads the first sector, which loads the second stage's first, which loads its rest: each
# must be told the sector, in 64 bits, where grub-bios-setup would write it.
cp /usr/lib/grub/i386-pc/boot.img "$scratch/boot.img"
printf '\x00\x08\0\0\0\0\0\0' | poke "$scratch/boot.img" $((0x5c))
printf '\x01\x08\0\0\0\0\0\0' | poke "$scratch/core.img" $((0x1f4))
head -c 440 "$scratch/boot.img" | poke "$disk" 0
dd if="$scratch/core.img" of="$disk" bs=512 seek="$bios_at" conv=notrunc status=none

grub-mkimage -O x86_64-efi -p /boot/grub -c "$scratch/grub.cfg" -o "$scratch/bootx64.efi" \
  efi_gop all_video "${modules[@]}"
truncate -s $(((root_at - efi_at) * 512)) "$scratch/efi"
mkfs.vfat -n EFI "$scratch/efi" >/dev/null
mmd -i "$scratch/efi" ::/EFI ::/EFI/BOOT
mcopy -i "$scratch/efi" "$scratch/bootx64.efi" ::/EFI/BOOT/BOOTX64.EFI
dd if="$scratch/efi" of="$disk" bs=1M seek=$((efi_at / 2048)) conv=notrunc status=none

case " $* " in *" qcow2 "*) qemu-img convert -O qcow2 "$disk" "$out/gnomon.qcow2" ;; esac
case " $* " in *" raw "*) ;; *) rm -f "$disk" ;; esac
echo "image: $out has $* and a kernel with its initrd"

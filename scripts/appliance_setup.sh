#!/usr/bin/env bash
# Makes a Debian system an appliance: kernel parameters and huge pages, vfio, gnomon with its units
# and configuration, enabled. For the running system, or one in a directory; the image, the boot
# test and the Vagrantfile all use it. Repeating it changes nothing. Takes effect at the next boot.
#
#   scripts/appliance_setup.sh [DIR]          default: /
#
#   GNOMON               the program to install              target/release/gnomon
#   GNOMON_HUGE_PAGES    pages of 2 MB set aside at boot     512
#   GNOMON_PARAMETERS    more of the kernel's command line, such as gnomon.port=0000:81:00.0
set -euo pipefail
cd "$(dirname "$0")/.."

root=${1:-/}
root=${root%/}
program=${GNOMON:-target/release/gnomon}

# put MODE FILE: standard input to that file of the system.
put() {
  install -D -m "$1" /dev/stdin "$root$2"
}

# --- the machine ------------------------------------------------------------------------------------

# vfio needs an IOMMU. Pass-through spares devices that the kernel keeps the translation.
parameters="intel_iommu=on iommu=pt hugepages=${GNOMON_HUGE_PAGES:-512}"
parameters+=${GNOMON_PARAMETERS:+ $GNOMON_PARAMETERS}
put 644 /etc/default/grub.d/gnomon.cfg <<END
# shellcheck shell=sh disable=SC2034
GRUB_CMDLINE_LINUX="\$GRUB_CMDLINE_LINUX $parameters"
END
printf '%s\n' vfio-pci tun | put 644 /etc/modules-load.d/gnomon.conf
if [ -z "$root" ] && command -v update-grub >/dev/null; then
  update-grub
fi

# --- gnomon -----------------------------------------------------------------------------------------

install -D -m 755 "$program" "$root/usr/bin/gnomon"
for unit in appliance/systemd/*.service; do
  install -D -m 644 "$unit" "$root/lib/systemd/system/$(basename "$unit")"
done
install -D -m 755 appliance/systemd/gnomon-generator "$root/lib/systemd/system-generators/gnomon-generator"
[ -e "$root/etc/gnomon.conf" ] || install -D -m 644 appliance/systemd/gnomon.conf "$root/etc/gnomon.conf"
systemctl --root="${root:-/}" enable --quiet gnomon.service

# Sourced after tests/e2e/lib.sh, wire.sh and tests/boot/qemu.sh: a QEMU guest that is Debian's kernel and, over 9p,
# the files of this machine.
# shellcheck shell=bash disable=SC2154 # the sourcing scripts' and libraries'

# kernel_fetched CACHE KERNEL: the kernel and its modules are in the cache.
kernel_fetched() {
  local cache=$1 kernel=$2
  [ ! -e "$cache/$kernel/modules.dep" ] || return 0
  (cd "$scratch" && apt-get download "linux-image-$kernel" && dpkg-deb -x linux-image-*.deb fetched) &&
    busybox depmod -b "$scratch/fetched" "$kernel" &&
    rm -rf "${cache:?}/$kernel" &&
    mv "$scratch/fetched/lib/modules/$kernel" "$cache/$kernel.new" &&
    mv "$scratch/fetched/boot/vmlinuz-$kernel" "$cache/$kernel.new/vmlinuz" &&
    mv "$cache/$kernel.new" "$cache/$kernel"
}

# guest_made MODULES: the guest's kernel and its first file system, with those modules. Its standard input
# is what the guest does once it has them and the files: `here PROGRAM` runs one of this machine's by its
# path (by its name busybox would take its own), `word NAME` is a word of the kernel's command line.
# The kernel is fetched from the mirror that apt has, once. Sets $vmlinuz.
guest_made() {
  local cache=target/netem root=$scratch/root modules=$1 kernel module
  kernel=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image-/ { print $2; exit }')
  kernel=${kernel#linux-image-}
  mkdir -p "$cache"
  # Scripts run side by side.
  (flock 9 && kernel_fetched "$cache" "$kernel") 9>"$cache/lock"
  vmlinuz=$cache/$kernel/vmlinuz
  mkdir -p "$root"/{bin,proc,sys,dev,host} "$root/lib/modules/$kernel"
  cp "$(command -v busybox)" "$root/bin/busybox"
  for module in $modules; do
    grep "/$module\.ko:" "$cache/$kernel/modules.dep"
  done >"$root/lib/modules/$kernel/modules.dep"
  tr -d : <"$root/lib/modules/$kernel/modules.dep" | tr ' ' '\n' | sort -u |
    (cd "$cache/$kernel" && xargs cp --parents -t "$root/lib/modules/$kernel")
  {
    cat <<INIT
#!/bin/busybox sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
modprobe -a $modules
mount -t 9p -o trans=virtio,version=9p2000.L,msize=131072,ro host /host
for there in proc dev sys; do mount -o bind /\$there /host/\$there; done
here() { chroot /host "\$@"; }
word() { sed -n "s/.* \$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
INIT
    cat
    echo 'poweroff -f'
  } >"$root/init"
  chmod +x "$root/init"
  (cd "$root" && find . | busybox cpio -o -H newc) | gzip -1 >"$scratch/initrd"
}

# guest_runs WHO SECONDS [TAP MAC]: boots the guest in $server, with its NIC on that TAP device, gtap0 otherwise; it does
# what it has to and ends, or is ended. What it says goes to $scratch/console-WHO.
guest_runs() {
  local who=$1 seconds=$2 tap=${3:-gtap0} mac=${4:-$nic_mac}
  in_ns "$server" timeout "$seconds" qemu-system-x86_64 -nodefaults -no-user-config -no-reboot -display none \
    -machine q35 -accel tcg,thread=multi -cpu Westmere -smp 1 -m 512 -kernel "$vmlinuz" -initrd "$scratch/initrd" \
    -append "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off who=$who" \
    -chardev "file,id=console,path=$scratch/console-$who" -serial chardev:console \
    -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on \
    -netdev "tap,id=cable,ifname=$tap,script=no,downscript=no" \
    -device "virtio-net-pci,netdev=cable,mac=$mac,csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,host_tso4=off,host_tso6=off" \
    >"$scratch/qemu-$who.log" 2>&1
}

# guest_asks WHO [SECONDS]: what the guest said is in $scratch/said, and its checks are counted.
guest_asks() {
  local status=0
  guest_runs "$1" "${2:-1800}" || status=$?
  tr -d '\r' <"$scratch/console-$1" >"$scratch/said"
  check "the guest ends" test "$status" -eq 0
  counted grep -aE '^(ok|FAILED) ' "$scratch/said"
}

# guest_told: what the guest said, if anything failed.
guest_told() {
  [ "$failed" -eq 0 ] || tail -n 40 "$scratch/said" | sed 's/^/        | /'
}

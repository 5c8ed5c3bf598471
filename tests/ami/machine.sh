#!/bin/bash
# A machine of the test: its disk is UPPER over the folders LOWER, alone in namespaces of its own. It shares only
# the network with the host. With PROGRAM, it runs only that. Without, systemd boots it; standard input is then a
# terminal, which becomes its console. Then udev has loaded the kernel module MODULE, if the disk has it. SIGTERM,
# SIGINT and SIGHUP end the machine.
#
#   MODULE=nvidia machine.sh LOWER UPPER WORK [PROGRAM...]
set -eu
lower="$1" upper="$2" work="$3"
cgroups="$work.cgroups" root="$work.root"
cgroup="$cgroups/machine-${upper##*/}"

# A control group of its own, which only this part can remove, after the machine has ended.
begin() {
  mkdir -p "$cgroups"
  mount -t cgroup2 cgroup2 "$cgroups"
  mkdir "$cgroup"
  STAGE=enter unshare --pid --ipc --uts --fork --kill-child "$0" "$@" <&0 &
  trap 'kill -KILL $!' TERM INT HUP
  # A signal ends the first `wait`.
  wait $! || wait $! || true
  until find "$cgroup" -depth -type d -exec rmdir {} + 2> /dev/null; do sleep 0.05; done
}

mount_disk() {
  mkdir -p "$upper" "$work" "$root"
  mount -t overlay overlay -o "lowerdir=$lower,upperdir=$upper,workdir=$work" "$root"
  mount -t proc proc "$root/proc"
  mount -t tmpfs -o mode=755 tmpfs "$root/run"
}

run() {
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/sys"
  mkdir -p "$root/run/sshd" "$root/run/cloud-init"
  # What cloud-init leaves after the first boot.
  local stage='{"errors": [], "start": 1.0, "finished": 2.0}'
  echo "{\"v1\": {\"datasource\": \"DataSourceEc2Local\", \"stage\": null, \"init\": $stage, \"init-local\": $stage, \
    \"modules-config\": $stage, \"modules-final\": $stage}}" > "$root/run/cloud-init/status.json"
  echo '{"v1": {"datasource": "DataSourceEc2Local", "errors": []}}' > "$root/run/cloud-init/result.json"
  touch "$root/run/cloud-init/enabled"
  # Not `exec`: the first process of the namespace reaps orphans.
  chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    LANG=C.UTF-8 "$@"
}

# Boots as systemd-nspawn does (systemd.io/CONTAINER_INTERFACE): the machine can change nothing of the host.
boot() {
  local one
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  mkdir "$root/dev/pts" "$root/dev/shm"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts "$root/dev/pts"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  ln -s pts/ptmx "$root/dev/ptmx"
  ln -s /proc/self/fd "$root/dev/fd"
  for one in null zero full random urandom tty; do
    touch "$root/dev/$one"
    mount --bind "/dev/$one" "$root/dev/$one"
  done
  touch "$root/dev/console"
  # Not the link /proc/self/fd/0: in a chroot it may name a path of the outer root.
  mount --bind "$(tty)" "$root/dev/console"
  for one in sys sysrq-trigger; do
    [[ -e "$root/proc/$one" ]] || continue
    mount --bind "$root/proc/$one" "$root/proc/$one"
    mount -o remount,bind,ro "$root/proc/$one"
  done
  mount -t sysfs -o ro sysfs "$root/sys"
  mount -t tmpfs tmpfs "$root/sys/block" # no disks of the host
  mount -t tmpfs tmpfs "$root/sys/module"
  [[ -z "$MODULE" ]] || chroot "$root" modprobe "$MODULE" || true
  mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
  cd "$root"
  mount --move . /
  # The host has SSH's port, and journald would share the kernel's log.
  exec chroot . env -i container=test setpriv \
    --bounding-set=-sys_module,-sys_rawio,-sys_time,-net_admin,-syslog -- \
    /lib/systemd/systemd --unit=multi-user.target systemd.mask=ssh.service systemd.mask=console-getty.service
}

case "${STAGE:-}" in
  '') STAGE=begin exec unshare --mount --propagation private "$0" "$@" ;;
  begin) begin "$@" ;;
  enter)
    echo 0 > "$cgroup/cgroup.procs"
    STAGE=inside exec unshare --mount --propagation private --cgroup "$0" "$@"
    ;;
  inside)
    umount "$cgroups"
    mount_disk
    shift 3
    if (($# > 0)); then run "$@"; else boot; fi
    ;;
esac

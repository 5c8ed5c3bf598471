# shellcheck shell=bash
# The service that mounts the instance store at boot.

UNIT=runner-instance-store.service

before() {
  need_command lsblk mdadm mkfs.ext4 mount
}

apply() {
  local from
  from="$(cd "$(dirname "${BASH_SOURCE[0]}")/../files" && pwd)"
  install -D -m 755 "$from/mount-instance-store" /usr/local/sbin/mount-instance-store
  install -D -m 644 "$from/$UNIT" "/etc/systemd/system/$UNIT"
  systemctl enable "$UNIT"
}

after() {
  systemctl --quiet is-enabled "$UNIT" || fail "$UNIT does not start at boot"
  bash -n /usr/local/sbin/mount-instance-store
}

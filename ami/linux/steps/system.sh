# shellcheck shell=bash
# The system: packages that jobs and the agent expect, the clock, the user of the runner, no upgrades at boot.

PACKAGES=(acl ca-certificates chrony curl git jq mdadm python3 sudo unzip xz-utils zip zstd)
TIMERS=(apt-daily.timer apt-daily-upgrade.timer)

before() {
  need_command apt-get cloud-init curl python3 systemctl
  need_free_gb / 5
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || fail "the agent needs Python 3.9 or later"
}

apply() {
  # A stock image upgrades itself at boot, which holds apt's lock and can reboot a machine during a job.
  systemctl mask "${TIMERS[@]}" unattended-upgrades.service
  apt_install "${PACKAGES[@]}"
  systemctl enable chrony.service
  # `upgrade` installs no new package, and so no other kernel than the one that runs.
  retry 3 1800 "${APT[@]}" upgrade
  id -u runner > /dev/null 2>&1 || useradd --create-home --shell /bin/bash runner
  local group
  for group in docker video render; do
    getent group "$group" > /dev/null || groupadd --system "$group"
    usermod --append --groups "$group" runner
  done
  printf 'runner ALL=(ALL) NOPASSWD: ALL\n' > /etc/sudoers.d/90-runner
  chmod 440 /etc/sudoers.d/90-runner
  install -D -m 644 "$(dirname "${BASH_SOURCE[0]}")/../files/cloud-init.cfg" \
    /etc/cloud/cloud.cfg.d/99-runner.cfg
}

after() {
  need_packages "${PACKAGES[@]}"
  [[ "$(id -u runner)" != 0 ]] || fail "the user runner is root"
  [[ " $(id -nG runner) " == *" docker "* ]] || fail "the user runner is not in the group docker"
  visudo --check --quiet || fail "sudo's configuration has an error"
  local timer
  for timer in "${TIMERS[@]}"; do
    [[ "$(systemctl is-enabled "$timer" 2> /dev/null)" == masked ]] || fail "$timer is not masked"
  done
  systemctl --quiet is-enabled chrony.service || fail "chrony does not start at boot"
  note python "$(python3 -c 'import platform; print(platform.python_version())')"
}

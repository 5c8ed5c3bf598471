# shellcheck shell=bash
# Removes what belongs to the build machine: keys, logs, its identity, and what the agent must not find.

OURS=(/etc/runner-agent/controller.json /var/lib/runner-agent/started)
IDENTITY=(/var/lib/cloud/instance /var/lib/dbus/machine-id /var/lib/systemd/random-seed)

before() {
  [[ -s /opt/runner-agent/image.json ]] || fail "the manifest is missing"
}

apply() {
  rm -f "${OURS[@]}"
  "${APT[@]}" clean
  rm -rf /var/lib/apt/lists/*
  # The next boot is a first boot: user data runs again, and the machine gets new host keys.
  cloud-init clean --logs --seed
  # Empty: each machine gets an ID of its own. "uninitialized", as `cloud-init clean --machine-id` writes, would also
  # reset which services start at boot (machine-id(5), "First Boot Semantics").
  : > /etc/machine-id
  rm -f /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub /root/.bash_history /home/*/.bash_history
  # Packer's key. Its connection stays open.
  rm -f /root/.ssh/authorized_keys /home/*/.ssh/authorized_keys
  rm -f "${IDENTITY[@]:1}"
  find /var/log -type f -exec truncate --size 0 {} +
}

after() {
  local file
  for file in "${OURS[@]}" "${IDENTITY[@]}" /root/.ssh/authorized_keys /home/*/.ssh/authorized_keys; do
    [[ ! -e "$file" ]] || fail "$file is in the image"
  done
  [[ -e /etc/machine-id && ! -s /etc/machine-id ]] || fail "/etc/machine-id has the ID of the build machine"
  sync
}

# shellcheck shell=bash
# The GPU driver and the container toolkit, installed by the agent as `driver: install` does it at boot, with the
# plan of `autoscaler images driver`. The build machine must have a GPU: only then can the driver be tested.

AGENT="${AGENT:-/opt/runner-agent/agent.py}"
PLAN="$(dirname "${BASH_SOURCE[0]}")/../driver.json"
UNIT=runner-gpu.service

# planned KEY: prints a text of the plan, or nothing.
planned() {
  python3 -I -S -c 'import json, sys; print(json.load(open(sys.argv[1])).get(sys.argv[2], ""))' "$PLAN" "$1"
}

before() {
  [[ -s "$AGENT" ]] || fail "$AGENT is missing: the step agent installs it"
  [[ -s "$PLAN" ]] || fail "driver.json was not uploaded"
  [[ "$(planned vendor)" == nvidia ]] || fail "driver.json is no plan of NVIDIA's driver: set -var driver_plan=FILE"
}

apply() {
  # The agent reads only files that only root can write.
  install -m 600 "$PLAN" "$IMAGE_BUILD/driver.json"
  python3 -I -S "$AGENT" install-driver "$IMAGE_BUILD/driver.json" ||
    fail "the driver was not installed: the line above names the check, /var/log/runner-agent/driver.log has more"
  install -D -m 644 "$(dirname "${BASH_SOURCE[0]}")/../files/$UNIT" "/etc/systemd/system/$UNIT"
  systemctl enable "$UNIT"
  # Its downloads.
  rm -rf /var/lib/runner-agent/driver
}

after() {
  local found
  # The exit status of nvidia-smi says nothing: it is 0 although a GPU has failed.
  found="$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | sort -u)"
  [[ "$found" == "$(planned version)" ]] || fail "nvidia-smi shows driver '$found', not $(planned version)"
  systemctl --quiet is-enabled "$UNIT" || fail "$UNIT does not start at boot"
  note driver "$found"
}

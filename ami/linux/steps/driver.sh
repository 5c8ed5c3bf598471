# shellcheck shell=bash
# The GPU driver and what belongs to it, installed by the agent as `driver: install` does it at boot, with the plan
# of `autoscaler images driver`. The build machine must have a GPU: only then can the driver be tested.

AGENT="${AGENT:-/opt/runner-agent/agent.py}"
HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
PLAN="$HERE/driver.json"

# planned KEY: prints a text of the plan, or nothing.
planned() {
  python3 -I -S -c 'import json, sys; print(json.load(open(sys.argv[1])).get(sys.argv[2], ""))' "$PLAN" "$1"
}

# load_vendor: sets VENDOR to the file of the plan's vendor, and sources it.
load_vendor() {
  local name
  name="$(planned vendor)"
  VENDOR="$HERE/vendors/$name.sh"
  [[ "$name" =~ ^[a-z]+$ && -f "$VENDOR" ]] || fail "driver.json is no plan of a driver: set -var driver_plan=FILE"
  # shellcheck disable=SC1090 # each file in vendors/ is checked
  source "$VENDOR"
}

before() {
  [[ -s "$AGENT" ]] || fail "$AGENT is missing: the step agent installs it"
  [[ -s "$PLAN" ]] || fail "driver.json was not uploaded"
  load_vendor
  [[ "$DRIVER_RECIPE" == "$IMAGE_RECIPE" ]] ||
    fail "driver.json is a plan for $DRIVER_RECIPE, and the recipe is $IMAGE_RECIPE"
}

apply() {
  load_vendor
  # The agent reads only files that only root can write.
  install -m 600 "$PLAN" "$IMAGE_BUILD/driver.json"
  python3 -I -S "$AGENT" install-driver "$IMAGE_BUILD/driver.json" ||
    fail "the driver was not installed: the line above names the check, /var/log/runner-agent/install.log has more"
  set_up_driver "$HERE/files"
  ((${#DRIVER_UNITS[@]} == 0)) || systemctl enable "${DRIVER_UNITS[@]}"
  # The image's own test asks for the driver in the same way.
  install -D -m 644 "$VENDOR" /opt/runner-agent/driver.sh
  # Its downloads.
  rm -rf /var/lib/runner-agent/driver
}

after() {
  local found unit
  load_vendor
  found="$(show_driver)"
  [[ "$found" == "$(planned version)" ]] || fail "the GPUs have driver '$found', not $(planned version)"
  for unit in "${DRIVER_UNITS[@]}"; do
    systemctl --quiet is-enabled "$unit" || fail "$unit does not start at boot"
  done
  note driver "$found"
}

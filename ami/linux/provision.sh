#!/usr/bin/env bash
# Turns a stock Linux instance into a machine image: runs the steps of a recipe, each with a check before and a
# check after it, and writes the manifest. Packer runs it as root.
#
#   IMAGE_RECIPE=linux-cpu ... provision.sh
#
# recipes/ has the steps of each recipe, in order. A step is a file in steps/ with three functions: `before` (can
# the step succeed?), `apply`, `after` (did it?). Each function runs in a shell of its own, for at
# most STEP_SECONDS. docs/images.md lists the variables.
set -euo pipefail
here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
export IMAGE_BUILD="${IMAGE_BUILD:-/var/lib/image-build}"
# shellcheck source=ami/linux/lib.sh
source "$here/lib.sh"

recipe="$here/recipes/${IMAGE_RECIPE:?}"
[[ -f "$recipe" ]] || fail "no recipe is called $IMAGE_RECIPE"
mapfile -t steps < "$recipe"
((EUID == 0)) || fail "run this as root"
: "${RUNNER_VERSION:?}" "${RUNNER_URL:?}" "${RUNNER_SHA256:?}" "${AGENT_SHA256:?}" "${BASE_IMAGE:?}"
install -d -m 755 "$IMAGE_BUILD" /opt/runner-agent
: > "$IMAGE_BUILD/versions"
: > "$IMAGE_BUILD/steps"

# phase STEP FUNCTION: runs one function of a step.
phase() {
  local status=0
  # shellcheck disable=SC2016 # the inner shell expands
  timeout --kill-after=10 "${STEP_SECONDS:-3600}" bash -euo pipefail -c '
    source "$0/lib.sh"
    source "$0/steps/$1.sh"
    "$2"' "$here" "$1" "$2" < /dev/null || status=$?
  ((status != 124 && status != 137)) || say "error: it was stopped after ${STEP_SECONDS:-3600} s"
  ((status == 0)) || fail "step $1 failed in '$2' (status $status)"
}

write_manifest() {
  dpkg-query -W -f '${Package}\t${Version}\n' > "$IMAGE_BUILD/packages"
  python3 -I "$here/manifest.py" "$IMAGE_BUILD" /opt/runner-agent/image.json
}

for step in "${steps[@]}"; do
  began=$SECONDS
  # The last step removes what the build left, so the manifest is written before it.
  [[ "$step" != seal ]] || write_manifest
  phase "$step" before
  phase "$step" apply
  phase "$step" after
  printf '%s\t%s\n' "$step" "$((SECONDS - began))" >> "$IMAGE_BUILD/steps"
  say "step $step: $((SECONDS - began)) s"
done
rm -rf -- "$IMAGE_BUILD"
say "done"

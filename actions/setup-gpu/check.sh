#!/usr/bin/env bash
# Checks the NVIDIA GPUs of this machine against WANTED_COUNT and WANTED_MEMORY (MiB).
#
# Prints them into the job's log and its summary. Sets the outputs `count` and `driver`, and the variable
# CUDA_DEVICE_ORDER for the steps that follow. Fails with an annotation if a GPU is missing or too small.
set -euo pipefail

fail() {
  echo "::error title=GPU::$*"
  exit 1
}

for value in "$WANTED_COUNT" "$WANTED_MEMORY"; do
  [[ "$value" =~ ^[0-9]{1,7}$ ]] || fail "count and memory-mib must be whole numbers"
done
command -v nvidia-smi > /dev/null \
  || fail "this machine has no nvidia-smi; check runs-on, and that the image has a driver"
# One line a GPU: name, MiB, driver.
status=0
listed="$(timeout --kill-after=5 60 \
  nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader,nounits 2>&1)" || status=$?
# timeout(1): 124 after its signal, 137 after SIGKILL.
[[ "$status" != 124 && "$status" != 137 ]] || fail "nvidia-smi did not end in 60 s; use another machine"
[[ "$status" == 0 ]] || fail "nvidia-smi failed: ${listed//$'\n'/ }"

count=0 driver="" table=""
while IFS=, read -r name memory version; do
  name="${name# }" memory="${memory// /}" driver="${version// /}"
  [[ "$memory" =~ ^[0-9]+$ ]] || fail "nvidia-smi reports no memory: $name, $memory"
  ((memory >= WANTED_MEMORY)) || fail "$name has $memory MiB, and the job needs $WANTED_MEMORY MiB"
  count=$((count + 1))
  table+="| $name | $memory | $driver |"$'\n'
done <<< "$listed"
((count >= WANTED_COUNT)) || fail "this machine has $count GPUs, and the job needs $WANTED_COUNT"

echo "$listed"
printf '| GPU of %s | MiB | driver |\n|---|---|---|\n%s' "${RUNNER_NAME:-this machine}" "$table" >> "$GITHUB_STEP_SUMMARY"
printf 'count=%s\ndriver=%s\n' "$count" "$driver" >> "$GITHUB_OUTPUT"
# CUDA then numbers GPUs as nvidia-smi does.
echo "CUDA_DEVICE_ORDER=PCI_BUS_ID" >> "$GITHUB_ENV"

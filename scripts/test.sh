#!/usr/bin/env bash
# Runs all parts of `make test`, even after a failure, and prints a summary. Exits with 1 if a part failed.
#
# A part is a target of the Makefile. `crowds` runs first and alone, because its thousand machines need the
# whole host. Then seven lines of parts run at the same time, because many parts mostly wait for processes. No line
# takes much longer than the others. `cluster` and `pods` wait until `programs` has ended. The
# output of background parts is printed when all parts have ended, except that of `programs`: its first run on a
# host takes 15 minutes.
set -uo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit

logs="$(mktemp -d)"
trap 'rm -rf -- "$logs"' EXIT
# Ctrl-C ends the running parts, and no other part starts.
stopped=""
# `time` prints the CPU seconds of the processes that ended in a part. It counts all of a shell's children, so each
# part runs in a shell of its own. Processes that outlive their parents are not counted.
TIMEFORMAT="%U %S"
trap 'stopped=1' INT

# run PART ... : runs each part, and prints and saves its output. Background jobs of a shell ignore Ctrl-C
# unless `env` restores the signal. Bash may skip its trap if `tee` outlives Ctrl-C, so a part's exit status
# of 130 (SIGINT) also stops the run.
run() {
  local part began status
  for part in "$@"; do
    [[ -z "$stopped" ]] || return
    began=$SECONDS
    (
      trap '' INT
      time env --default-signal=INT,QUIT make --no-print-directory "$part" 2>&1 | tee -i "$logs/$part.log"
      exit "${PIPESTATUS[0]}"
    ) 2> "$logs/$part.cpu"
    status=$?
    ((status != 130)) || stopped=1
    echo "$status $((SECONDS - began))" > "$logs/$part.result"
  done
}

summarise() {
  local part status seconds cpu failed=0
  printf '\n==> Summary\n'
  for part in "$@"; do
    if [[ ! -f "$logs/$part.result" ]]; then
      printf '    not run                         %s\n' "$part"
      failed=1
      continue
    fi
    read -r status seconds < "$logs/$part.result"
    cpu="$(awk 'END { printf "%.0f", $1 + $2 }' "$logs/$part.cpu")"
    if ((status == 0)); then
      printf '    passed %5d s  %5d s of CPU  %s\n' "$seconds" "$cpu" "$part"
    else
      printf '    FAILED %5d s  %5d s of CPU  %s\n' "$seconds" "$cpu" "$part"
      grep -E '^(FAILED|ERROR) ' "$logs/$part.log" | sed 's/^[A-Z]* /             /'
      failed=1
    fi
  done
  return "$failed"
}

beside=(lint types contracts rooms)
behind=(images laboratory services kills windows worlds edges project terraform programs cluster pods)
run crowds
exec 3>&1
processes=()
for line in "images terraform kills" "laboratory windows" worlds edges project; do
  # Ctrl-C ends the part, not the shell that records its result.
  (
    trap '' INT
    # shellcheck disable=SC2086 # split the line into parts
    run $line
  ) > "$logs/${line%% *}.all" 2>&1 &
  processes+=($!)
done
(
  trap '' INT
  run programs >&3
  run cluster > "$logs/cluster.all" 2>&1 &
  run pods services
  wait
) > "$logs/pods.all" 2>&1 &
processes+=($!)
run "${beside[@]}"
for process in "${processes[@]}"; do
  # Ctrl-C interrupts `wait`, so repeat it.
  while kill -0 "$process" 2> /dev/null; do wait "$process"; done
done
cat "$logs"/*.all
summarise crowds "${beside[@]}" "${behind[@]}"

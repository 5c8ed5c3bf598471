#!/usr/bin/env bash
# Runs all parts of `make test`, whichever of them fail, and ends with a summary that names what failed.
# Exits with 1 if anything did.
#
# A part is a target of the Makefile. `crowds` comes first and alone: its thousand machines need the whole
# host. `laboratory`, `services` and `kills` wait for processes most of the time, so the other parts compute
# beside them, on two cores. The output of the parts in the background comes when all have ended.
set -uo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit

logs="$(mktemp -d)"
trap 'rm -rf -- "$logs"' EXIT
# Ctrl-C ends the parts that run, and no other one starts.
stopped=""
trap 'stopped=1' INT

# run PART ... : keeps what each prints, and prints it. What a shell runs in the background ignores Ctrl-C
# unless `env` takes that back. Bash may leave its trap out where `tee` outlives the Ctrl-C, so the status
# of a part that died of SIGINT (130) counts too.
run() {
  local part began status
  for part in "$@"; do
    [[ -z "$stopped" ]] || return
    began=$SECONDS
    env --default-signal=INT,QUIT make --no-print-directory "$part" 2>&1 | tee -i "$logs/$part.log"
    status="${PIPESTATUS[0]}"
    ((status != 130)) || stopped=1
    echo "$status $((SECONDS - began))" > "$logs/$part.result"
  done
}

summarise() {
  local part status seconds failed=0
  printf '\n==> Summary\n'
  for part in "$@"; do
    if [[ ! -f "$logs/$part.result" ]]; then
      printf '    not run         %s\n' "$part"
      failed=1
      continue
    fi
    read -r status seconds < "$logs/$part.result"
    if ((status == 0)); then
      printf '    passed %5d s  %s\n' "$seconds" "$part"
    else
      printf '    FAILED %5d s  %s\n' "$seconds" "$part"
      grep -E '^(FAILED|ERROR) ' "$logs/$part.log" | sed 's/^[A-Z]* /             /'
      failed=1
    fi
  done
  return "$failed"
}

beside=(lint rooms)
behind=(laboratory services kills worlds types contracts)
run crowds
processes=()
for line in laboratory "services kills" worlds "types contracts"; do
  # Ctrl-C ends the part itself, not the shell that writes its result down.
  (
    trap '' INT
    # shellcheck disable=SC2086 # the parts of a line are words
    run $line
  ) > "$logs/${line%% *}.all" 2>&1 &
  processes+=($!)
done
run "${beside[@]}"
for process in "${processes[@]}"; do
  # A wait that Ctrl-C broke off is taken up again.
  while kill -0 "$process" 2> /dev/null; do wait "$process"; done
done
cat "$logs"/*.all
summarise crowds "${beside[@]}" "${behind[@]}"

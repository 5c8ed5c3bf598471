#!/usr/bin/env bash
# Runs both commands of the README on a fresh Debian: a root made by mmdebstrap that has Debian's required
# packages, python3, make, git and ca-certificates, with a clone of the working tree's HEAD in it.
#
#   scripts/fresh.sh [COMMAND ...]     other commands than `make demo` and `make test`
#
# Needs root and some 4 GB in TMPDIR. The host's network, and its settings of apt, pip, uv, npm, proxies and
# certificates, hold in there too; nothing else of the host does. DEBIAN=trixie names another release.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

PACKAGES=python3,make,git,ca-certificates
SOURCES=(/etc/apt/sources.list /etc/apt/sources.list.d/debian.sources)
SETTINGS=(/etc/resolv.conf /etc/hosts /etc/pip.conf ~/.config/pip/pip.conf /etc/uv/uv.toml
  ~/.config/uv/uv.toml /usr/local/share/ca-certificates/*.crt)
VARIABLES='^(https?_proxy|no_proxy|all_proxy|ssl_cert_file|requests_ca_bundle|(pip|uv|npm_config)_[a-z_]+)$'

say() { printf '==> %s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

((EUID == 0)) || fail "a root for Debian is made by root only: sudo make fresh"
if ! command -v mmdebstrap > /dev/null; then
  command -v apt-get > /dev/null || fail "mmdebstrap is needed, from the Debian package of that name"
  say "Installing the Debian package mmdebstrap"
  apt-get update -qq < /dev/null > /dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends mmdebstrap \
    < /dev/null > /dev/null
fi
(($# > 0)) || set -- 'make demo' 'make test'
[[ -z "$(git status --porcelain)" ]] || say "What is not committed is left out"

scratch="$(mktemp -d)"
root="$scratch/root"
running=""

# The mounts below the root live in a namespace of their own: they go with the processes in it.
clean_up() {
  trap '' INT TERM HUP # another Ctrl-C would leave the root behind
  [[ -z "$running" ]] || kill -KILL "$running" 2> /dev/null || true
  wait 2> /dev/null
  say "Removing $scratch"
  rm -rf --one-file-system -- "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

codename() (
  # shellcheck source=/dev/null
  . /etc/os-release
  [[ "$ID" == debian ]] && printf '%s' "$VERSION_CODENAME"
)

make_root() {
  local release="${DEBIAN:-}" mirrors=() file
  if [[ -z "$release" ]] && release="$(codename)"; then
    for file in "${SOURCES[@]}"; do
      [[ ! -s "$file" ]] || mirrors+=("$file")
    done
  fi
  release="${release:-bookworm}"
  say "Making a root with Debian $release in $root"
  apt-config dump Acquire | grep -E '^Acquire::(https?|Check-|Retries)' > "$scratch/apt.conf" || true
  mmdebstrap --quiet --variant=minbase --include="$PACKAGES" --aptopt="$scratch/apt.conf" \
    "$release" "$root" "${mirrors[@]}" < /dev/null
}

# NAME=VALUE of each variable that holds in there. The files that one names come along.
environment=(HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}"
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin)
take_settings() {
  local files=("${SETTINGS[@]}") name file
  for name in $(compgen -e | grep -iE "$VARIABLES"); do
    environment+=("$name=${!name}")
    files+=("${!name}")
  done
  for file in "${files[@]}"; do
    [[ ! -f "$file" ]] || install -D -m 644 -- "$file" "$root$file"
  done
  chroot "$root" update-ca-certificates > /dev/null 2>&1
}

# In the background, where a signal interrupts the wait for it. What runs in the background ignores SIGINT,
# and tests send that: `env` takes it back. The inner bash is PID 1 of a namespace, whose end ends all that
# it started; it does not `exec`, because a PID 1 has to collect what others left behind.
in_root() {
  # shellcheck disable=SC2016
  unshare --mount --pid --fork --kill-child --propagation private bash -c '
    mount -t proc proc "$0/proc"
    mount --rbind /dev "$0/dev"
    mount --rbind /sys "$0/sys"
    chroot "$0" env -i --default-signal=INT,QUIT "${@:2}" bash -c "cd /root/project && $1"
    exit $?' "$root" "$1" "${environment[@]}" < /dev/null &
  running=$!
  local status=0
  wait "$running" || status=$?
  running=""
  return "$status"
}

make_root
take_settings
say "Cloning $(git log -1 --format='%h, %s')"
git clone --quiet --depth 1 "file://$PWD" "$root/root/project"
failed=()
for command in "$@"; do
  say "$command"
  began=$SECONDS
  if in_root "$command"; then
    say "$command: passed after $((SECONDS - began)) s"
  else
    say "$command: failed with status $? after $((SECONDS - began)) s"
    failed+=("$command")
  fi
done
((${#failed[@]} == 0)) || fail "failed on a fresh Debian: $(printf '%s; ' "${failed[@]}")"

#!/usr/bin/env bash
# Runs the commands of the README on a fresh Debian, `make demo` and `make test`, as root and as an ordinary user, with
# a /tmp of 3 GiB. It creates a root file system with mmdebstrap, which has Debian's required
# packages, python3, make, git and ca-certificates, and clones HEAD into it. About twenty minutes.
#
#   scripts/fresh.sh [all]             all: also `make test-systems`, which takes an hour with empty caches
#   scripts/fresh.sh COMMAND ...       runs these commands as root
#
# Needs root and about 5 GB in TMPDIR, 15 GB for `all`. The fresh Debian uses the host's network and its settings for
# apt, pip, uv, npm, proxies and certificates. For `all` it also gets the host's Terraform and the mirror with
# Terraform's AWS provider, if they are there: Debian has neither, and their makers' sites may be out of reach.
# DEBIAN=trixie selects another release.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

PACKAGES=python3,make,git,ca-certificates
SOURCES=(/etc/apt/sources.list /etc/apt/sources.list.d/debian.sources)
SETTINGS=(/etc/resolv.conf /etc/hosts /etc/pip.conf ~/.config/pip/pip.conf /etc/uv/uv.toml
  ~/.config/uv/uv.toml /usr/local/share/ca-certificates/*.crt)
VARIABLES='^(https?_proxy|no_proxy|all_proxy|ssl_cert_file|requests_ca_bundle|go(proxy|sumdb|private|noproxy)|(pip|uv|npm_config)_[a-z_]+)$'

say() { printf '==> %s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

((EUID == 0)) || fail "only root can create a root file system: run sudo make fresh"
if ! command -v mmdebstrap > /dev/null; then
  command -v apt-get > /dev/null || fail "mmdebstrap is missing; install the Debian package mmdebstrap"
  say "Installing the Debian package mmdebstrap"
  apt-get update -qq < /dev/null > /dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends mmdebstrap \
    < /dev/null > /dev/null
fi
all=""
if [[ "$*" == all || $# == 0 ]]; then
  all="$*"
  set -- 'make demo' 'make test' 'as ordinary user: make demo' 'as ordinary user: make test' ${all:+'make test-systems'}
fi
[[ -z "$(git status --porcelain)" ]] || say "Uncommitted changes are omitted"

scratch="$(mktemp -d)"
root="$scratch/root"
running=""

# The mounts below the root are in their own namespace and disappear with its processes.
clean_up() {
  trap '' INT TERM HUP # a second Ctrl-C would leave the root file system behind
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
  say "Creating a root file system with Debian $release in $root"
  apt-config dump Acquire | grep -E '^Acquire::(https?|Check-|Retries)' > "$scratch/apt.conf" || true
  mmdebstrap --quiet --variant=minbase --include="$PACKAGES" --aptopt="$scratch/apt.conf" \
    "$release" "$root" "${mirrors[@]}" < /dev/null
}

# NAME=VALUE of each variable for the fresh Debian. A file that a variable names is copied too.
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

take_terraform() {
  local part path
  while read -r part path; do
    say "Copying Terraform's $part from $path"
    case "$part" in
      terraform) install -D -m 755 -- "$path" "$root/usr/local/bin/terraform" ;;
      mirror)
        mkdir -p "$root/opt/terraform-plugins/registry.terraform.io/hashicorp"
        cp -RL -- "$path/registry.terraform.io/hashicorp/aws" \
          "$root/opt/terraform-plugins/registry.terraform.io/hashicorp/"
        ;;
    esac
  done < <(python3 -m lab.terraform.parts)
}

# A command as an ordinary user runs in a clone of this user's own.
ORDINARY='as ordinary user: '
add_user() {
  chroot "$root" useradd --create-home ordinary
  git clone --quiet --depth 1 "file://$PWD" "$root/home/ordinary/a project"
  chroot "$root" chown -R ordinary: /home/ordinary
}

# The command runs in the background, so that a signal interrupts `wait`. Background jobs ignore SIGINT, which
# tests send; `env` restores it. The inner bash is PID 1 of a namespace, so its exit ends every process in it.
# It does not `exec` the command, because PID 1 must reap orphans. The root is a mount point, because buildah
# changes how mounts propagate below `/`.
in_root() {
  local command="cd /root/project && $1" size=3g
  # The images of `make test-systems` are larger.
  [[ "$1" != *test-systems* ]] || size=0
  if [[ "$1" == "$ORDINARY"* ]]; then
    command="cd '/home/ordinary/a project' && exec runuser -u ordinary -- env HOME=/home/ordinary ${1#"$ORDINARY"}"
  fi
  # shellcheck disable=SC2016
  unshare --mount --pid --fork --kill-child --propagation private bash -c '
    mount --bind "$0" "$0"
    mount -t proc proc "$0/proc"
    mount --rbind /dev "$0/dev"
    mount --rbind /sys "$0/sys"
    [[ "$2" == 0 ]] || mount -t tmpfs -o "size=$2,mode=1777" tmpfs "$0/tmp"
    chroot "$0" env -i --default-signal=INT,QUIT "${@:3}" bash -c "$1"
    exit $?' "$root" "$command" "$size" "${environment[@]}" < /dev/null &
  running=$!
  local status=0
  wait "$running" || status=$?
  running=""
  return "$status"
}

make_root
take_settings
[[ -z "$all" ]] || take_terraform
say "Cloning $(git log -1 --format='%h, %s')"
git clone --quiet --depth 1 "file://$PWD" "$root/root/project"
[[ "$*" != *"$ORDINARY"* ]] || add_user
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

#!/usr/bin/env bash
# Sets up what `make test` and `make demo` need: Debian packages, uv, .venv as uv.lock says, and what
# some tests compare with (scripts/npm_packages.py). Does nothing when all of it is there. As root it
# installs what is missing from Debian; otherwise it names it and stops. It never changes uv.lock, and
# never installs into the system's Python.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

UV_VERSION=0.13.8
UV_HOME=.cache/uv
STAMP=.venv/.set-up

say() { printf '==> %s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

new_enough() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' > /dev/null 2>&1
}

find_python() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3 python3.12 python3.13 python3.14; do
    if new_enough "$candidate"; then
      command -v "$candidate"
      return
    fi
  done
  fail "Python 3.11 or newer is needed and none was found; on Debian 12: apt-get install python3"
}

install_packages() {
  if ((EUID != 0)) || ! command -v apt-get > /dev/null; then
    fail "Debian packages are missing; as root: apt-get install $*"
  fi
  say "Installing Debian packages: $*"
  apt-get update -qq < /dev/null > /dev/null
  DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" \
    < /dev/null > /dev/null
}

python="$(find_python)"
packages=()
"$python" -c 'import ensurepip, venv' 2> /dev/null || packages+=(
  "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
)
command -v openssl > /dev/null || packages+=(openssl)
# The lab's machines drop privileges with setpriv when they are run as root.
command -v setpriv > /dev/null || packages+=(util-linux)
# A test looks on from the kernel's side while deliveries are taken in.
command -v strace > /dev/null || packages+=(strace)
((${#packages[@]} == 0)) || install_packages "${packages[@]}"

# It looks itself whether anything is missing. Nothing but a few tests needs what it brings, and they
# say so: the demo runs without.
bring_packages() {
  .venv/bin/python scripts/npm_packages.py || true
}

lock="$(cat pyproject.toml uv.lock scripts/bootstrap.sh | sha256sum)"
known="$(cat "$STAMP" 2> /dev/null || true)"
if new_enough .venv/bin/python && [[ "$known" == "$lock $PWD" ]]; then
  bring_packages
  exit 0
fi

if ! "$UV_HOME/bin/uv" --version 2> /dev/null | grep -qF "uv $UV_VERSION "; then
  say "Installing uv $UV_VERSION"
  rm -rf "$UV_HOME"
  "$python" -m venv "$UV_HOME"
  "$UV_HOME/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$UV_VERSION"
fi

# The programs of an environment hold its folder: one that was moved or copied is made anew.
if ! new_enough .venv/bin/python || [[ -n "$known" && "$known" != *" $PWD" ]]; then
  rm -rf .venv
fi
[[ -d .venv ]] || "$UV_HOME/bin/uv" venv --quiet --no-managed-python --python "$python" .venv

say "Installing what uv.lock names into .venv"
unset VIRTUAL_ENV UV_PROJECT_ENVIRONMENT
"$UV_HOME/bin/uv" sync --frozen --all-extras --quiet --no-python-downloads < /dev/null
printf '%s\n' "$lock $PWD" > "$STAMP"
bring_packages
say "Set up in ${SECONDS} s"

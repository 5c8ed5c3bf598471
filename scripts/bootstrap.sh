#!/usr/bin/env bash
# Installs what the commands need: uv, the Python packages of uv.lock into .venv, and Debian packages: for the demo
# and the tests only python3-venv. Does nothing if everything is installed. As root it installs missing Debian
# packages; otherwise it prints their names and stops. It never changes uv.lock and never installs into the system's
# Python.
#
#   scripts/bootstrap.sh [demo|test|systems]     what the command needs: make demo, make test (the default) or
#                                                make test-systems
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

UV_VERSION=0.13.8
UV_HOME=.cache/uv
STAMP=.venv/.set-up

purpose="${1:-test}"

say() { printf '==> %s\n' "$*"; }
fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

[[ "$purpose" =~ ^(demo|test|systems)$ ]] || fail "usage: scripts/bootstrap.sh [demo|test|systems]"

new_enough() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' > /dev/null 2>&1
}

find_python() {
  local candidate
  local needed
  # One that can create .venv first: Debian's has no ensurepip without the package python3-venv.
  for needed in 'ensurepip, venv' sys; do
    for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3 python3.12 python3.13 python3.14; do
      if new_enough "$candidate" && "$candidate" -c "import $needed" 2> /dev/null; then
        command -v "$candidate"
        return
      fi
    done
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
# The lab starts the controller with setpriv and, as root, its machines.
command -v setpriv > /dev/null || packages+=(util-linux)
if [[ "$purpose" == systems ]]; then
  # Tests build machine images and container images. They download as an image's build does, sign packages, check
  # signatures, plant bugs, trace system calls, and check the examples of proxies.
  for tool in buildah mmdebstrap packer curl gpg gpg-agent openssl patch strace nginx caddy; do
    command -v "$tool" > /dev/null || packages+=("$tool")
  done
  # They run Windows machines under Wine, which needs x64 for the programs of Windows on x64.
  [[ "$HOSTTYPE" != x86_64 ]] || command -v wine > /dev/null || packages+=(wine wine64)
  # They open the console in a browser.
  [[ -n "${CHROMIUM:-}" ]] || command -v chromium > /dev/null || packages+=(chromium)
  # Playwright drives it, with a Node.js that needs this library.
  [[ "$(PATH="$PATH:/sbin" ldconfig -p 2> /dev/null)" == *libatomic.so.1* ]] || packages+=(libatomic1)
fi
# Debian starts a server when it installs it, but not a masked one.
proxies=()
for tool in nginx caddy; do [[ " ${packages[*]} " != *" $tool "* ]] || proxies+=("$tool"); done
for tool in "${proxies[@]}"; do systemctl mask --quiet "$tool" 2> /dev/null || true; done
((${#packages[@]} == 0)) || install_packages "${packages[@]}"
for tool in "${proxies[@]}"; do systemctl unmask --quiet "$tool" 2> /dev/null || true; done

# Downloads the files that some tests compare with, if they are missing. Without them those tests print
# what they need.
bring_packages() {
  [[ "$purpose" != systems ]] || .venv/bin/python scripts/npm_packages.py || true
}

lock="$(cat pyproject.toml uv.lock scripts/bootstrap.sh | sha256sum)"
# The program itself: /usr/bin/python3 and /usr/bin/python3.11 are the same.
here="$("$python" -c 'import os, sys; print(os.path.realpath(sys.executable))') $PWD"
known="$(cat "$STAMP" 2> /dev/null || true)"
# Both suites need the same Python packages, and the demo needs some of them.
wanted=all
[[ "$purpose" != demo ]] || wanted=demo
if new_enough .venv/bin/python && [[ "$known" == "$wanted $lock $here" || "$known" == "all $lock $here" ]]; then
  bring_packages
  exit 0
fi

# Measured: 460 MiB for the demo, 850 MiB for the tests.
needed=1000
[[ "$wanted" == all ]] || needed=550
free="$(df -m --output=avail . 2> /dev/null || true)"
free="${free##*[!0-9]}"
[[ -d .venv || -z "$free" ]] || ((free >= needed)) \
  || fail "the packages need $needed MiB of disk in $PWD, and $free MiB are free"

if ! "$UV_HOME/bin/uv" --version 2> /dev/null | grep -qF "uv $UV_VERSION "; then
  say "Installing uv $UV_VERSION"
  rm -rf "$UV_HOME"
  "$python" -m venv "$UV_HOME"
  "$UV_HOME/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r scripts/uv.txt
fi

# Programs in .venv contain its path, so a moved or copied .venv is created again, and so is one of another PYTHON.
if ! new_enough .venv/bin/python || [[ -n "$known" && "$known" != *" $here" ]]; then
  rm -rf .venv
fi
[[ -d .venv ]] || "$UV_HOME/bin/uv" venv --quiet --no-managed-python --python "$python" .venv

say "Installing the packages of uv.lock into .venv"
unset VIRTUAL_ENV UV_PROJECT_ENVIRONMENT
extras=(--extra demo)
[[ "$wanted" == all ]] || extras+=(--no-default-groups --inexact)
"$UV_HOME/bin/uv" sync --frozen --quiet --no-python-downloads "${extras[@]}" < /dev/null
printf '%s\n' "$wanted $lock $here" > "$STAMP"
bring_packages
say "Set up in ${SECONDS} s"

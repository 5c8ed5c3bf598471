# shellcheck shell=bash
# What the steps share: messages, bounded tries, packages, downloads. A step sources this file with
# `set -euo pipefail`. RETRY_DELAY is the first delay between tries in seconds; it doubles each time.

APT=(apt-get -q -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -o APT::Update::Error-Mode=any
  -o Dpkg::Options::=--force-confold --no-install-recommends)
# Ubuntu's needrestart would otherwise ask which services to restart.
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a

say() { printf 'image-build: %s\n' "$*"; }
fail() {
  printf 'image-build: error: %s\n' "$*" >&2
  exit 1
}

# retry TRIES SECONDS COMMAND...: runs a command until it succeeds, each time for at most SECONDS. Returns the
# status of the last try; 124 or 137 if it was stopped. RETRY_AS names the command in messages.
retry() {
  local tries="$1" limit="$2" delay="${RETRY_DELAY:-5}" try status why
  shift 2
  for ((try = 1; ; try++)); do
    status=0
    timeout --kill-after=10 "$limit" "$@" < /dev/null || status=$?
    ((status != 0)) || return 0
    why="ended with status $status"
    ((status != 124 && status != 137)) || why="was stopped after $limit s"
    say "${RETRY_AS:-$1} $why, try $try of $tries"
    ((try < tries)) || return "$status"
    sleep "$delay"
    delay=$((delay * 2))
  done
}

# installed PACKAGE: returns 0 if dpkg has installed and configured the package.
installed() {
  [[ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2> /dev/null)" == "ii " ]]
}

# need_packages PACKAGE...: fails and names the packages that are not installed, whatever apt-get said.
need_packages() {
  local package missing=()
  for package in "$@"; do
    installed "$package" || missing+=("$package")
  done
  ((${#missing[@]} == 0)) || fail "not installed: ${missing[*]}"
}

# apt_install PACKAGE...: reads the lists of packages, repairs what an earlier try left half installed, and
# installs the packages.
apt_install() {
  local limit="${APT_SECONDS:-900}"
  RETRY_AS="apt-get update" retry 5 "$limit" "${APT[@]}" update || fail "apt-get update failed: is a mirror down?"
  # shellcheck disable=SC2016 # the inner shell expands
  RETRY_AS="apt-get install" retry 3 "$limit" bash -c 'dpkg --configure -a && "$@"' apt-get "${APT[@]}" install "$@" ||
    fail "apt-get install failed: $*"
  need_packages "$@"
}

# fetch URL SHA256 FILE: downloads a file whose checksum is known.
fetch() {
  local url="$1" sum="$2" file="$3" found
  retry 5 "${FETCH_SECONDS:-900}" curl --fail --silent --show-error --location --output "$file" "$url" ||
    fail "cannot download $url"
  found="$(sha256sum "$file")"
  if [[ "${found%% *}" != "$sum" ]]; then
    rm -f "$file"
    fail "$url has the SHA-256 ${found%% *}, not $sum"
  fi
}

# need_command NAME...: fails and names the programs that are not on the PATH.
need_command() {
  local name missing=()
  for name in "$@"; do
    command -v "$name" > /dev/null || missing+=("$name")
  done
  ((${#missing[@]} == 0)) || fail "missing programs: ${missing[*]}"
}

# need_free_gb FOLDER GB: fails if the folder's file system has less than this much space left.
need_free_gb() {
  local free
  free="$(df --output=avail -k "$1" | tail -1)"
  ((free >= $2 * 1024 * 1024)) || fail "$1 has $((free / 1024)) MB left; needed: $2 GB"
}

# note NAME VALUE: adds a version to the manifest.
note() {
  printf '%s\t%s\n' "$1" "$2" >> "$IMAGE_BUILD/versions"
}

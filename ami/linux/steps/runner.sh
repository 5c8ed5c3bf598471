# shellcheck shell=bash
# actions/runner, of the version of versions.yaml, with what it needs, its .env and .path, warmed up.

ROOT=/opt/actions-runner
TOOLS=/opt/hostedtoolcache
JOBS_PATH=/home/runner/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

before() {
  id -u runner > /dev/null 2>&1 || fail "the user runner is missing: the step system creates it"
  [[ ! -e "$ROOT" ]] || fail "$ROOT is there already: the base image is not a stock image"
  need_free_gb /opt 3
}

apply() {
  local archive="$IMAGE_BUILD/runner.tar.gz"
  fetch "$RUNNER_URL" "$RUNNER_SHA256" "$archive"
  mkdir -p "$ROOT" "$TOOLS"
  tar --extract --gzip --no-same-owner --file "$archive" --directory "$ROOT"
  rm -f "$archive"
  retry 3 900 bash "$ROOT/bin/installdependencies.sh" || fail "installdependencies.sh failed"
  # A runner with a JIT configuration never runs config.sh, which otherwise writes these two files.
  printf '%s\n' LANG=C.UTF-8 "RUNNER_TOOL_CACHE=$TOOLS" "AGENT_TOOLSDIRECTORY=$TOOLS" > "$ROOT/.env"
  printf '%s\n' "$JOBS_PATH" > "$ROOT/.path"
  mkdir -p "$ROOT/_work"
  chown -R runner:runner "$ROOT" "$TOOLS"
  # Compiles the runner's .NET code, which otherwise costs seconds of the first job. Its logs must not be in
  # the image: the agent reads the logs of the listener.
  retry 3 300 sudo -u runner -- "$ROOT/bin/Runner.Listener" warmup || fail "Runner.Listener warmup failed"
  rm -rf "$ROOT/_diag"
}

after() {
  local found
  found="$(sudo -u runner -- "$ROOT/bin/Runner.Listener" --version)" || fail "Runner.Listener does not start"
  [[ "$found" == "$RUNNER_VERSION" ]] || fail "the runner says version $found, not $RUNNER_VERSION"
  [[ -x "$ROOT/run.sh" ]] || fail "$ROOT/run.sh is missing"
  [[ "$(stat -c %U "$ROOT" "$ROOT/_work" "$TOOLS" | sort -u)" == runner ]] || fail "runner does not own $ROOT"
  [[ ! -e "$ROOT/.runner" && ! -e "$ROOT/.credentials" ]] || fail "the runner is configured already"
  note runner "$found"
}

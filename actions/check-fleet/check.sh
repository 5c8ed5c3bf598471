#!/usr/bin/env bash
# Checks FLEET_FILE of the checked-out pull request, and asks the controller at CONTROLLER_URL what it would do.
#
# Shows both in one comment of the pull request, which later runs change. If GitHub refuses the comment, as for the
# read-only token of a fork, it is in the job's summary. Of the pull request, it reads one file and runs nothing.
# Fails if `autoscaler check` or the controller refuses the file.
set -euo pipefail

fail() {
  echo "::error title=check-fleet::$*"
  exit 1
}

program="$RUNNER_TEMP/check-fleet/bin/autoscaler"
work="$(mktemp -d "$RUNNER_TEMP/check-fleet.XXXXXX")"
trap 'rm -rf "$work"' EXIT
umask 077
# Only the action's inputs say where the token goes.
unset AUTOSCALER_CONFIG AUTOSCALER_URL AUTOSCALER_TOKEN_FILE

[[ "$FLEET_FILE" =~ ^[A-Za-z0-9._/-]{1,200}$ ]] || fail "file must be a path of letters, digits and ._/-"
root="$(realpath -e -- "$GITHUB_WORKSPACE")"
# A link could name a file of the runner, which the messages of a check would quote.
[[ -f "$root/$FLEET_FILE" && "$(realpath -e -- "$root/$FLEET_FILE")" == "$root/$FLEET_FILE" ]] \
  || fail "$FLEET_FILE must be a file of the checkout, and no link; does the job run actions/checkout before?"
name="${FLEET_FILE##*/}"
mkdir "$work/file"
cp -- "$root/$FLEET_FILE" "$work/file/$name"
cd "$work"

failure=""
marker="<!-- autoscaler check-fleet $FLEET_FILE -->"
echo "$marker" > report

# Add a heading and the output of a program to the report. No text in a block of code ends it or mentions a person.
add() {
  local most=30000 text
  text="$(tr -d '\000-\010\013-\037' < output | sed 's/^/    /')"
  printf '**%s**\n\n%s\n\n' "$1" "${text:0:most}" >> report
  ((${#text} <= most)) || printf 'This is its beginning. The log of the job has everything.\n\n' >> report
}

# Run a command of the autoscaler, and print its output into the log. No line of it can command the runner.
autoscaler() {
  local status=0 word
  (cd file && "$program" "$@") > output 2>&1 || status=$?
  word="$(od -An -N16 -tx8 /dev/urandom | tr -d ' \n')"
  printf '::stop-commands::%s\n' "$word"
  cat output
  printf '\n::%s::\n' "$word"
  return "$status"
}

check() {
  if autoscaler check --skip-files "$name"; then
    add "\`autoscaler check\` accepts \`$FLEET_FILE\`"
  else
    failure="autoscaler check refuses $FLEET_FILE"
    add "\`autoscaler check\` refuses \`$FLEET_FILE\`"
  fi
}

plan() {
  local status=0
  if [[ -z "$CONTROLLER_URL" || -z "$OPERATOR_TOKEN" ]]; then
    echo "No plan: this run has no \`controller-url\` or no \`token\`. Pull requests of forks get no secrets." >> report
    return
  fi
  printf '%s\n' "$OPERATOR_TOKEN" > token
  autoscaler plan --against "$name" --url "$CONTROLLER_URL" --token-file "$work/token" || status=$?
  rm token
  case "$status" in
    0) add "What the controller would do now" ;;
    2)
      failure="the plan of $FLEET_FILE was refused"
      add "No plan: it was refused"
      ;;
    *)
      echo "::warning title=check-fleet::the controller made no plan; the result of this check stands"
      add "No plan: the controller made none"
      ;;
  esac
}

# Send a request to GitHub; print the status of the answer, which is in the file `answer`.
github() {
  local body=()
  [[ $# -lt 3 ]] || body=(--data-binary "@$3")
  curl --silent --max-time 60 --output answer --write-out '%{http_code}' --request "$1" \
    --header @<(printf 'Authorization: Bearer %s\n' "$GITHUB_TOKEN") \
    --header 'Accept: application/vnd.github+json' --header 'Content-Type: application/json' \
    "${body[@]}" "$GITHUB_API_URL/repos/$GITHUB_REPOSITORY/issues/$2" || true
}

# Write the report into this action's own comment, or a new one; return whether GitHub accepted it.
comment() {
  local page status id="" own
  # shellcheck disable=SC2016 # jq expands
  own='first(.[] | select(.user.login == "github-actions[bot]" and (.body | startswith($m))).id) // ""'
  # Anyone may write a comment with this marker, so its author counts, too.
  for ((page = 1; page <= 100; page++)); do
    status="$(github GET "$PULL_REQUEST/comments?per_page=100&page=$page")"
    [[ "$status" == 200 ]] || break
    id="$(jq --raw-output --arg m "$marker" "$own" answer)"
    [[ -z "$id" && "$(jq length answer)" == 100 ]] || break
  done
  if [[ "$status" == 200 ]]; then
    jq --null-input --rawfile body report '{body: $body}' > request
    if [[ -n "$id" ]]; then
      status="$(github PATCH "comments/$id" request)"
    else
      status="$(github POST "$PULL_REQUEST/comments" request)"
    fi
  fi
  [[ "$status" != 20[01] ]] || return 0
  echo "::notice title=check-fleet::GitHub answered $status to the comment; the report is in the summary of this job"
  return 1
}

check
[[ -n "$failure" ]] || plan
if [[ -z "$PULL_REQUEST" ]] || ! comment; then
  cat report >> "$GITHUB_STEP_SUMMARY"
fi
[[ -z "$failure" ]] || fail "$failure"

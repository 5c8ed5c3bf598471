# shellcheck shell=bash
# The agent, so that the user data need not fetch it, and the program that tests the finished image.

AGENT=/opt/runner-agent/agent.py

before() {
  [[ -s "$(dirname "${BASH_SOURCE[0]}")/../agent.py" ]] || fail "agent.py was not uploaded"
}

apply() {
  local from
  from="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
  install -D -m 644 -o root -g root "$from/agent.py" "$AGENT"
  install -D -m 755 -o root -g root "$from/files/test-image" /opt/runner-agent/test-image
}

after() {
  local found
  found="$(sha256sum "$AGENT")"
  [[ "${found%% *}" == "$AGENT_SHA256" ]] || fail "$AGENT has another SHA-256 than the one that was sent"
  python3 -I -S -c 'import ast, sys; ast.parse(open(sys.argv[1]).read())' "$AGENT" ||
    fail "this Python cannot read $AGENT"
  note agent "$AGENT_SHA256"
}

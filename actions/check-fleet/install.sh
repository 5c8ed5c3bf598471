#!/usr/bin/env bash
# Installs the autoscaler of this action's own commit into a folder of the job.
set -euo pipefail

environment="$RUNNER_TEMP/check-fleet"
# Without -I, Python would run a venv.py or pip.py of the pull request: `-m` looks in the current folder first.
python3 -I -m venv --clear "$environment"
"$environment/bin/python" -I -m pip install --quiet --disable-pip-version-check "$GITHUB_ACTION_PATH/../.."

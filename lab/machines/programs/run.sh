#!/bin/bash
# The lab's stand-in for actions/runner's run.sh and run-helper.sh: starts the listener again after
# exit status 2, 3 and 4, and turns the others into 0, 7 only without the variable that asks for it.
# The session's id is for the lab, to end it all.
echo $$ > session
while :; do
  bin/Runner.Listener run
  code=$?
  case "$code" in
    0) echo "Runner listener exit with 0 return code, stop the service, no retry needed." ;;
    2 | 3 | 4)
      echo "Runner listener exit with retryable error, re-launch runner in 5 seconds."
      sleep 5
      continue
      ;;
    7)
      if [[ "$ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE" == 1 ]]; then
        echo "Runner listener exit with deprecated version exit code: 7."
        exit 7
      fi
      ;;
    *) echo "Runner listener exit with terminated error, stop the service, no retry needed." ;;
  esac
  exit 0
done

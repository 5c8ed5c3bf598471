#!/bin/bash
# The lab's stand-in for actions/runner's run.sh. The session's id is for the lab, to end it all.
echo $$ > session
bin/Runner.Listener
echo "Runner listener exited with error code $?"

# shellcheck shell=sh
# Runs a program, and kills it when standard input closes: however the parent ends, nothing stays behind.
#
#   sh guard.sh PROGRAM [ARGUMENT ...]
exec 3<&0
"$@" < /dev/null 3<&- &
program=$!
(
  cat <&3 > /dev/null
  kill -KILL "$program"
) 2> /dev/null &
watcher=$!
wait "$program"
status=$?
kill "$watcher" 2> /dev/null
exit "$status"

#!/bin/bash
# A machine of the test: its disk is UPPER over the folders LOWER, and it runs PROGRAM there, alone in a PID
# namespace. Its `shutdown` writes to /run/shutdown.
#
#   machine.sh LOWER UPPER WORK PROGRAM...
set -eu
lower="$1" upper="$2" work="$3"
shift 3
if [[ -z "${INSIDE:-}" ]]; then
  INSIDE=1 exec unshare --mount --pid --fork --kill-child --propagation private "$0" "$lower" "$upper" "$work" "$@"
fi
root="$work.root"
mkdir -p "$upper" "$work" "$root"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$upper,workdir=$work" "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mkdir -p "$root/run/sshd" "$root/run/cloud-init"
# What cloud-init leaves after the first boot.
stage='{"errors": [], "start": 1.0, "finished": 2.0}'
echo "{\"v1\": {\"datasource\": \"DataSourceEc2Local\", \"stage\": null, \"init\": $stage, \"init-local\": $stage, \
  \"modules-config\": $stage, \"modules-final\": $stage}}" > "$root/run/cloud-init/status.json"
echo '{"v1": {"datasource": "DataSourceEc2Local", "errors": []}}' > "$root/run/cloud-init/result.json"
touch "$root/run/cloud-init/enabled"
mkdir "$root/run/bin"
printf '#!/bin/sh\necho "$*" >> /run/shutdown\n' > "$root/run/bin/shutdown"
chmod 755 "$root/run/bin/shutdown"
# Not `exec`: the first process of the namespace reaps orphans.
chroot "$root" env -i PATH=/run/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
  LANG=C.UTF-8 "$@"
exit $?

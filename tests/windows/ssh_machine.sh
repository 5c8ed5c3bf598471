#!/bin/bash
# The SSH server of a Windows build machine, alone in namespaces of its own: the real sshd of Debian, whose account
# Administrator has cmd.exe under Wine as its shell, and for SFTP the machine's drives.
#
#   ssh_machine.sh PREFIX WORK PORT DEBIAN
#
# PREFIX is the machine's disk, WORK a folder with the file authorized_keys, DEBIAN a root with openssh-server. The
# variables of Wine come from the caller.
set -eu
prefix="$1" work="$2" port="$3" debian="$4"

if [[ "${STAGE:-}" != inside ]]; then
  STAGE=inside exec unshare --mount --propagation private --pid --fork --kill-child --mount-proc "$0" "$@"
fi

mkdir -p "$work/drives" "$work/lib"
sshd="$debian/usr/sbin/sshd" keygen="$debian/usr/bin/ssh-keygen"
export LD_LIBRARY_PATH="$work/lib"
# Those libraries of both programs that this host does not have.
for program in "$sshd" "$keygen"; do
  while mapfile -t missing < <(ldd "$program" | sed -n 's/^\s*\(\S*\) => not found$/\1/p') && ((${#missing[@]} > 0)); do
    for one in "${missing[@]}"; do ln -s "$debian/usr/lib/x86_64-linux-gnu/$one" "$work/lib/$one"; done
  done
done
ln -s "$prefix/drive_c" "$work/drives/C:"
ln -s "$prefix/drive_c" "$work/drives/c:"

{
  echo '#!/bin/bash'
  for name in PATH HOME LANG WINEPREFIX WINEDEBUG WINEDLLOVERRIDES LAB_WINDOWS LAB_MACHINE; do
    printf 'export %s=%q\n' "$name" "${!name}"
  done
  printf 'lab=%q\n' "$prefix/drive_c/lab"
  cat << 'END'
# Windows' SSH server runs: cmd.exe /c COMMAND. In a file, the quotes reach cmd.exe as they are.
file="$(mktemp --suffix=.cmd "$lab/ssh-XXXXXX")"
printf '@%s\r\n' "$2" > "$file"
cd "$lab"
# A pipe: Wine's programs cannot write to a socket.
wine cmd.exe /c "C:\\lab\\${file##*/}" < /dev/null 2>&1 | cat
exit "${PIPESTATUS[0]}"
END
} > "$work/shell"
chmod 755 "$work/shell"

mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/sshd
{
  grep -v '^sshd:' /etc/passwd
  echo 'sshd:x:105:65534::/run/sshd:/usr/sbin/nologin'
  echo "Administrator:x:0:0::$work:$work/shell"
} > "$work/passwd"
mount --bind "$work/passwd" /etc/passwd
"$keygen" -q -t ed25519 -N '' -f "$work/host_key"
cat > "$work/sshd_config" << END
Port $port
ListenAddress 127.0.0.1
HostKey $work/host_key
AuthorizedKeysFile $work/authorized_keys
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile none
Subsystem sftp internal-sftp -d $work/drives
END
# Not exec: the first process of the namespace reaps orphans.
"$sshd" -D -e -f "$work/sshd_config"

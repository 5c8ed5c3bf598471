"""The program that mounts the instance store at boot, with stand-ins for the programs that need real disks."""

import os
import subprocess
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "ami" / "linux" / "files" / "mount-instance-store"
STORE = 'NAME="/dev/nvme{}n1" MODEL="Amazon EC2 NVMe Instance Storage         "'
ROOT_DISK = 'NAME="/dev/nvme0n1" MODEL="Amazon Elastic Block Store              "'


def boot(
    folder: Path, *disks: str, label: str = "", assembled: bool = False, holder: str = ""
) -> list[str]:
    """Run the program on a machine with these disks; return the calls of the stand-ins.

    `assembled`: whether mdadm can assemble an array. `holder`: the array that has a disk already.
    """
    programs, root, calls = folder / "bin", folder / "root", folder / "calls"
    programs.mkdir(exist_ok=True)
    calls.write_text("")
    (folder / "disks").write_text("\n".join(disks) + "\n")
    (folder / "holders").write_text(f"/dev/nvme1n1 disk\n{holder}\n")
    (root / "var/lib/docker/image").mkdir(parents=True, exist_ok=True)
    texts = {
        "lsblk": f'case "$*" in *NAME,TYPE*) cat {folder}/holders ;; *) cat {folder}/disks ;; esac',
        "blkid": f"echo {label}",
        "mdadm": f'echo "mdadm $*" >> {calls}\n[ "$1" != --assemble ] || exit {int(not assembled)}',
        "mkfs.ext4": f'echo "mkfs $*" >> {calls}',
        "mount": f'echo "mount $*" >> {calls}',
    }
    for name, text in texts.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "INSTANCE_STORE_ROOT": str(root),
    }
    subprocess.run([PROGRAM], env=environment, check=True, capture_output=True)
    return calls.read_text().replace(str(root), "").splitlines()


BINDS = [
    "mount --bind /mnt/instance-store/_work /opt/actions-runner/_work",
    "mount --bind /mnt/instance-store/docker /var/lib/docker",
    "mount --bind /mnt/instance-store/containerd /var/lib/containerd",
]


def test_a_machine_without_such_disks_is_not_changed(tmp_path: Path) -> None:
    assert boot(tmp_path, ROOT_DISK) == []


def test_one_disk_is_formatted_and_mounted_below_the_folders(tmp_path: Path) -> None:
    calls = boot(tmp_path, ROOT_DISK, STORE.format(1))
    assert calls[0].startswith("mkfs -q -F -L instance-store")
    assert calls[0].endswith(" /dev/nvme1n1")
    assert calls[1:] == ["mount -o noatime /dev/nvme1n1 /mnt/instance-store", *BINDS]
    # What the image has in such a folder is still there.
    assert (tmp_path / "root/mnt/instance-store/docker/image").is_dir()


def test_several_disks_become_one_array(tmp_path: Path) -> None:
    calls = boot(tmp_path, STORE.format(2), ROOT_DISK, STORE.format(1))
    assert calls[:2] == [
        "mdadm --assemble /dev/md/instance-store /dev/nvme1n1 /dev/nvme2n1",
        "mdadm --create /dev/md/instance-store --run --level=0 --raid-devices=2 "
        "--name=instance-store /dev/nvme1n1 /dev/nvme2n1",
    ]
    assert calls[3:] == ["mount -o noatime /dev/md/instance-store /mnt/instance-store", *BINDS]


def test_a_reboot_keeps_the_array_and_its_files(tmp_path: Path) -> None:
    disks = (STORE.format(1), STORE.format(2))
    boot(tmp_path, *disks)
    (tmp_path / "root/mnt/instance-store/_work/repository").mkdir()
    calls = boot(tmp_path, *disks, label="instance-store", assembled=True)
    assert [call for call in calls if "create" in call or "mkfs" in call] == []
    assert (tmp_path / "root/mnt/instance-store/_work/repository").is_dir()


def test_an_array_that_udev_assembled_at_a_reboot_is_mounted_under_its_own_name(
    tmp_path: Path,
) -> None:
    """Its disks are busy then, so mdadm could neither assemble nor create it."""
    disks = (STORE.format(1), STORE.format(2))
    calls = boot(tmp_path, *disks, label="instance-store", holder="/dev/md127 raid0")
    assert calls == ["mount -o noatime /dev/md127 /mnt/instance-store", *BINDS]

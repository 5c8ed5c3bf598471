"""The lab's stand-in for the installers of an image's build, the Git of one of them, and EC2Launch.

What it does depends on its name and its options. `C:\\lab\\installs-nothing` names an installer that says that
it succeeded, and installs nothing.
"""

import os
import shutil
import sys
import winreg

GIT = "C:\\Program Files\\Git"
LIES = "C:\\lab\\installs-nothing"
LAUNCH = "C:\\ProgramData\\Amazon\\EC2Launch"
RUNTIME = "SOFTWARE\\Microsoft\\VisualStudio\\14.0\\VC\\Runtimes\\x64"
RUNTIME_VERSION = "v14.44.35211.00"
LISTED = "SOFTWARE\\Microsoft\\Windows\\CurrentVersion\\Uninstall"


def set_values(key: str, values: "dict[str, int | str]") -> None:
    """Set values of the machine's registry."""
    if sys.platform == "win32":  # type checkers of Linux know no registry
        with winreg.CreateKeyEx(winreg.HKEY_LOCAL_MACHINE, key, 0, winreg.KEY_WRITE) as opened:
            for name, value in values.items():
                kind = winreg.REG_DWORD if isinstance(value, int) else winreg.REG_SZ
                winreg.SetValueEx(opened, name, 0, kind, value)


def install_runtime() -> int:
    """Do as the redistributable of Visual C++: list the runtime, and ask for a restart."""
    set_values(RUNTIME, {"Installed": 1, "Version": RUNTIME_VERSION})
    return 3010


def install_git(me: str) -> int:
    """Do as the installer of Git for Windows."""
    for name in ("cmd\\git.exe", "bin\\bash.exe"):
        path = os.path.join(GIT, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.copyfile(me, path)
    set_values(LISTED + "\\Git_is1", {"DisplayName": "Git", "DisplayVersion": "2.55.0.5"})
    return 0


def git(words: list[str]) -> int:
    """Answer git.exe."""
    if words == ["--version"]:
        print("git version 2.55.0.windows.5")
        return 0
    if words == ["config", "--system", "core.longpaths", "true"]:
        with open(os.path.join(GIT, "gitconfig"), "w", encoding="ascii") as file:
            file.write("[core]\n\tlongpaths = true\n")
        return 0
    return 129


def ec2launch(words: list[str]) -> int:
    """Answer EC2Launch.exe: forget the first boot, and remove the logs."""
    if words != ["reset", "--clean", "--block"]:
        return 1
    shutil.rmtree(LAUNCH + "\\log", ignore_errors=True)
    os.unlink(LAUNCH + "\\state\\.run-once")
    return 0


def main() -> int:
    """Return the exit status."""
    me, *words = sys.argv
    name = os.path.basename(me).lower().removesuffix(".exe")
    if name == "git":
        return git(words)
    if name == "ec2launch":
        return ec2launch(words)
    if os.path.exists(LIES):
        with open(LIES, encoding="ascii") as file:
            if file.read().strip() == name:
                return 0
    if words == ["/install", "/quiet", "/norestart"]:
        return install_runtime()
    if "/VERYSILENT" in words and "/NORESTART" in words:
        return install_git(me)
    return 87


if __name__ == "__main__":
    sys.exit(main())

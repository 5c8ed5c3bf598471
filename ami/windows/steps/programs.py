"""Programs that jobs expect: Git with its bash, for `actions/checkout` and `shell: bash`, and the runtime of
Visual C++, without which PyTorch and others do not load.
"""

import re
from pathlib import Path

from library import (
    BUILD,
    MACHINE_VARIABLES,
    StepError,
    fetch,
    get_value,
    need_free_gb,
    note,
    prepend_path,
    run,
    value,
)

GIT = Path("C:\\Program Files\\Git")
GIT_OPTIONS = ("/SP-", "/VERYSILENT", "/SUPPRESSMSGBOXES", "/NORESTART", "/NOCANCEL")
RUNTIME = "SOFTWARE\\Microsoft\\VisualStudio\\14.0\\VC\\Runtimes\\x64"
RUNTIME_OPTIONS = ("/install", "/quiet", "/norestart")
RUNTIME_ACCEPTED = (0, 1638, 3010)
"""Besides success: a newer version is there already, and a restart is needed, which the image gets anyway."""


def before() -> None:
    """Check the space."""
    need_free_gb(4)


def apply() -> None:
    """Run both installers."""
    runtime, git = BUILD / "vc-redist-installer.exe", BUILD / "git-installer.exe"
    fetch(value("VC_REDIST_URL"), value("VC_REDIST_SHA256"), runtime)
    run(runtime, *RUNTIME_OPTIONS, seconds=900, accepted=RUNTIME_ACCEPTED)
    fetch(value("GIT_URL"), value("GIT_SHA256"), git)
    run(git, *GIT_OPTIONS, seconds=900)
    prepend_path(GIT / "cmd", GIT / "bin")
    run(GIT / "cmd" / "git.exe", "config", "--system", "core.longpaths", "true")


def after() -> None:
    """Check that both are there, whatever the installers said."""
    if get_value(RUNTIME, "Installed") != 1:
        raise StepError("the runtime of Visual C++ is not installed")
    note("vc-redist", str(get_value(RUNTIME, "Version")).removeprefix("v"))
    said = run(GIT / "cmd" / "git.exe", "--version")
    found = re.search(r"git version (\S+)", said)
    # 2.55.0.5 says 2.55.0.windows.5.
    version = found[1].replace(".windows.", ".") if found else said.strip()
    if version != value("GIT_VERSION"):
        raise StepError(f"Git says version {version}, not {value('GIT_VERSION')}")
    if not (GIT / "bin" / "bash.exe").is_file():
        raise StepError(f"{GIT} has no bash")
    if str(GIT / "bin") not in str(get_value(MACHINE_VARIABLES, "Path")).split(";"):
        raise StepError("Git's bash is not on the PATH of the machine")
    note("git", version)

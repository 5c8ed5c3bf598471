"""The lab's stand-in for NVIDIA's installer: does what the file `C:\\lab\\installer` says.

`installs STATUS` lets nvidia-smi print `C:\\lab\\answer` from now on, `exits STATUS` installs nothing, and
`hangs 0` does not end.
"""

import shutil
import sys
import time
from pathlib import Path

LAB = Path("C:\\lab")


def main() -> int:
    """Return the exit status. Keeps the arguments in a file."""
    with (LAB / "arguments").open("a", encoding="utf-8") as file:
        file.write(" ".join(sys.argv[1:]) + "\n")
    what, status = (LAB / "installer").read_text("utf-8").split()
    if what == "hangs":
        time.sleep(3600)
    if what == "installs":
        shutil.copyfile(LAB / "answer", LAB / "nvidia-smi")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())

"""The lab's stand-in for nvidia-smi.exe: prints what a driver left for it. Without one it is no command."""

import re
import sys
from pathlib import Path

ANSWER = Path("C:\\lab\\nvidia-smi")
NOT_A_COMMAND = 9009
"""cmd.exe's exit status for a command that does not exist."""


def main() -> int:
    """Print the answer; return the exit status, which is 0 whatever the answer says."""
    if not ANSWER.exists():
        return NOT_A_COMMAND
    answer = ANSWER.read_text("utf-8")
    if sys.argv[1:] == ["--query-gpu=driver_version", "--format=csv,noheader"]:
        answer = re.findall("<driver_version>(.*?)</driver_version>", answer)[0]
    print(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())

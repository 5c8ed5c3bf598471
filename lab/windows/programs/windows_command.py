"""The lab's stand-in for shutdown.exe and schtasks.exe, of which Wine's do nothing.

Passes its name and arguments to the lab (`lab.windows.commands`), which answers as Windows would.
"""

import json
import os
import socket
import sys


def main() -> int:
    """Return the exit status that the lab answers, after writing its text."""
    name = os.path.basename(sys.argv[0]).lower().removesuffix(".exe")
    host, _, port = os.environ["LAB_WINDOWS"].rpartition(":")
    said = {"machine": os.environ["LAB_MACHINE"], "words": [name, *sys.argv[1:]]}
    with socket.create_connection((host, int(port)), 30.0) as link, link.makefile("rw") as file:
        file.write(json.dumps(said) + "\n")
        file.flush()
        answer = json.loads(file.readline())
    sys.stdout.write(answer["text"] + "\n")
    return int(answer["status"])


if __name__ == "__main__":
    sys.exit(main())

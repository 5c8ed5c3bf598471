"""The lab's stand-in for shutdown.exe and schtasks.exe, of which Wine's do nothing.

Passes its name and arguments to the lab (`lab.windows.commands`), which answers as Windows would. Only the
tasks that the build of an image registers are files of the machine, in `C:\\lab\\tasks`.
"""

import json
import os
import socket
import sys
from xml.etree import ElementTree

TASKS = "C:\\lab\\tasks"


def create_task(words: "list[str]") -> int:
    """Register a task from its description, with an account and its password. Return the exit status."""
    options = dict(zip(words[::2], words[1::2], strict=True))
    if sorted(options) != ["/rp", "/ru", "/tn", "/xml"]:
        return 1
    with open(options["/xml"], encoding="utf-16") as file:
        xml = file.read()
    ElementTree.fromstring(xml)
    os.makedirs(TASKS, exist_ok=True)
    with open(os.path.join(TASKS, options["/tn"] + ".xml"), "w", encoding="utf-8") as file:
        file.write(xml)
    return 0


def show_task(name: str) -> int:
    """Print the description of a task. Return the exit status."""
    try:
        with open(os.path.join(TASKS, name + ".xml"), encoding="utf-8") as file:
            sys.stdout.write(file.read())
    except FileNotFoundError:
        sys.stdout.write("ERROR: The system cannot find the file specified.\n")
        return 1
    return 0


def main() -> int:
    """Return the exit status that the lab answers, after writing its text."""
    name = os.path.basename(sys.argv[0]).lower().removesuffix(".exe")
    if name == "schtasks" and sys.argv[1] == "/create":
        return create_task(sys.argv[2:])
    if name == "schtasks" and sys.argv[1:3] == ["/query", "/tn"]:
        return show_task(sys.argv[3])
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

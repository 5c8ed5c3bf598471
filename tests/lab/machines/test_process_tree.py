"""How the processes of a lab machine are ended."""

import subprocess
import sys

from lab.machines.process_tree import end_sessions, members

LARGE = "import os, time; held = b'x' * 200_000_000; os.write(1, b'begun\\n'); time.sleep(600)"
"""A program whose memory the kernel takes some milliseconds to free."""


def test_no_process_of_a_session_runs_when_it_was_ended() -> None:
    """A killed process holds its files open until the kernel has freed its memory."""
    first = subprocess.Popen(
        ["sh", "-c", f'"$0" -c "{LARGE}" & exec "$0" -c "{LARGE}"', sys.executable],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert first.stdout is not None
    assert first.stdout.read(12) == b"begun\nbegun\n"
    assert len(members([first.pid])) == 2
    end_sessions([first.pid])
    left = members([first.pid])
    first.communicate()
    assert left == set()

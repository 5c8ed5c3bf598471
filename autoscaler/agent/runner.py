"""The runner of the operating system that this machine runs."""

import sys

if sys.platform == "win32":
    from autoscaler.agent.windows_runner import WindowsRunner

    Runner = WindowsRunner
else:
    from autoscaler.agent.linux_runner import LinuxRunner

    Runner = LinuxRunner

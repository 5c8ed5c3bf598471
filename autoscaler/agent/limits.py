"""The agent's timers, and its bounds of input."""

from __future__ import annotations

# Timers, in seconds of the machine. docs/agent.md describes each; a test compares both.
PATIENCE = 15 * 60.0
HEARTBEAT = 60.0
POLL_WAIT = 50.0
NO_JOB = 2 * 60.0
RELEASE_AGAIN = 60.0
SUSPEND = 20.0
NO_WORKER = 12 * 60.0
WORKER_GONE = 5 * 60.0
EXIT_REPORT = 5 * 60.0
STOP = 30.0
GPU_ANSWER = 2 * 60.0
FABRIC_WAIT = 3 * 60.0
IMAGE_CHECK = 5 * 60.0
BOOT_SCRIPT = 10 * 60.0
DRIVER_TRY = 10 * 60.0
LOCK_WAIT = 3 * 60.0
HOOK_PROGRAM = 60.0
REFUSED_JOB = 60.0
RETRY_FIRST = 1.0
RETRY_MOST = 30.0

# Bounds of input, in bytes or numbers.
MOST_BODY = 64 * 1024
MOST_SETTINGS = 256 * 1024
MOST_EVENT = 32 * 1024 * 1024
MOST_TOKEN = 16 * 1024
MOST_LOG_AT_ONCE = 256 * 1024
MOST_LOG_FILES = 16
MOST_LINE = 4096
MOST_ERROR = 400
MOST_WORD = 100
MOST_VERSION = 32
MOST_PROCESSES = 4096
MOST_OUTPUT = 4 * 1024 * 1024
MOST_KERNEL_LOG = 16 * 1024 * 1024

"""The lab's stand-in for Runner.Listener.exe and Runner.Worker.exe on Windows.

The listener takes one job from the lab's GitHub (`lab.machine_host` says how they speak), and starts a worker,
which runs the job hooks around the job's one step, which is to wait. Unlike the stand-in on Linux, it neither
hangs nor ends a job before its time.
"""

import base64
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.parse
from typing import Any

CALL = re.compile(r"& ((?:'(?:[^']|'')*' ?)+)\r?\nexit \$LASTEXITCODE\r?\n\Z")
"""The only hook script that this worker can run: one program with quoted arguments, and its exit status."""

SUCCEEDED, FAILED = 100, 102
"""Exit statuses of a worker. A job whose worker exits with another one has failed (TaskResultUtil.cs)."""


class Listener:
    """The listener of one registration."""

    def __init__(self, settings: dict[str, Any], version: str) -> None:
        self._server = urllib.parse.urlsplit(settings["server"])
        self._runner, self._token = settings["runner_id"], settings["token"]
        self._scale = max(1.0, float(settings["scale"]))
        self._version = version
        os.makedirs("_diag", exist_ok=True)
        self._log = time.strftime("_diag\\Runner_%Y%m%d-%H%M%S-utc.log")

    def run(self) -> int:
        """Run one job. Return the exit status of the listener."""
        if self._insist("connect", {}) == 404:
            return self._refused()
        say("\u221a Connected to GitHub")
        say("Listening for Jobs")
        while True:
            status, answer = self._ask("message", {"wait": 15, "version": self._version}, 25.0)
            if status == 200:
                break
            if status == 404:
                return self._refused()
            if status != 204:
                time.sleep(0.3)
        job = answer["job"]
        self._trace(f"Message '1' received from session '{self._runner}'.")
        say(f"Running job: {job['name']}")
        succeeded, stepped = self._work(job)
        conclusion = "success" if succeeded else "failure"
        self._insist("completed", {"job": job["id"], "conclusion": conclusion, "stepped": stepped})
        say(f"Job {job['name']} completed with result: {'Succeeded' if succeeded else 'Failed'}")
        return 0

    def _work(self, job: dict[str, Any]) -> tuple[bool, bool]:
        """Run the job in a worker. Return whether it succeeded, and whether its step ran."""
        variables = dict(os.environ, GITHUB_EVENT_PATH=write_event(job))
        variables["GITHUB_REPOSITORY"] = str(job.get("repository", ""))
        worker = subprocess.Popen(
            ["bin\\Runner.Worker.exe", str(job["seconds"])],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        printed: list[bytes] = []
        assert worker.stdout is not None
        reader = threading.Thread(target=lambda out: printed.extend(out), args=(worker.stdout,))
        reader.start()
        self._insist("started", {"job": job["id"]})
        while not self._ends(worker):
            self._ask("renew", {"job": job["id"]}, 5.0)
        reader.join()
        return worker.returncode == SUCCEEDED, any(line.strip() == b"step" for line in printed)

    def _ends(self, worker: subprocess.Popen[bytes]) -> bool:
        """Return whether the worker ends before the lock on its job is to be renewed."""
        try:
            worker.wait(180.0 / self._scale)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _refused(self) -> int:
        text = (
            "Failed to create a session. The runner registration has been deleted from the server"
        )
        self._trace(f"WRITE ERROR: {text}, please re-configure.")
        return 1

    def _insist(self, step: str, body: dict[str, Any]) -> int:
        """Repeat a request until the lab's GitHub has answered it. Return the status."""
        while True:
            status, _ = self._ask(step, body, 10.0)
            if status in (204, 404):
                return status
            time.sleep(0.3)

    def _ask(self, step: str, body: dict[str, Any], timeout: float) -> tuple[int, dict[str, Any]]:
        """Return the status and the answer, status 0 if there was none."""
        link = http.client.HTTPConnection(self._server.netloc, timeout=timeout)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        path = f"{self._server.path}/lab/runners/{self._runner}/{step}"
        try:
            link.request("POST", path, json.dumps(body), headers)
            answer = link.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if answer.status == 200 else {}
        except (OSError, http.client.HTTPException):
            return 0, {}
        finally:
            link.close()

    def _trace(self, text: str) -> None:
        with open(self._log, "a", encoding="utf-8") as log:
            log.write(time.strftime("[%Y-%m-%d %H:%M:%SZ INFO Listener] ") + text + "\n")


def write_event(job: dict[str, Any]) -> str:
    """Write the payload of the run's event. Return its path."""
    os.makedirs("_work\\_temp", exist_ok=True)
    event: dict[str, Any] = {}
    if job.get("head") != job.get("repository"):
        event = {"pull_request": {"head": {"repo": {"full_name": job.get("head")}}}}
    path = os.path.join(os.getcwd(), "_work\\_temp\\event.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(event, file)
    return path


def work(seconds: float) -> int:
    """Run the hooks and the step of a job. Return the exit status of the worker.

    If the first hook fails, the job fails, and a step with `if: always()` still runs (StepsRunner.cs).
    """
    failed = run_hook("ACTIONS_RUNNER_HOOK_JOB_STARTED")
    say("step")
    time.sleep(seconds)
    failed |= run_hook("ACTIONS_RUNNER_HOOK_JOB_COMPLETED")
    return FAILED if failed else SUCCEEDED


def run_hook(variable: str) -> int:
    """Run the program that a hook's script names. Return 1 if it failed. Raises ValueError."""
    path = os.environ.get(variable)
    if not path:
        return 0
    with open(path, encoding="utf-8", newline="") as file:
        found = CALL.match(file.read())
    if found is None:
        raise ValueError(f"{path} is not a script that the lab can run")
    words = [word.replace("''", "'") for word in re.findall(r"'((?:[^']|'')*)'", found[1])]
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    with open("_diag\\hooks.log", "ab") as log:
        log.write(done.stdout)
    return int(done.returncode != 0)


def say(text: str) -> None:
    """Write a line to the terminal now, in UTF-8, as .NET does for a pipe."""
    sys.stdout.buffer.write(f"{text}\n".encode())
    sys.stdout.buffer.flush()


def main() -> int:
    """Run as the listener, or as the worker, by the name of the program."""
    if "worker" in os.path.basename(sys.argv[0]).lower():
        return work(float(sys.argv[1]))
    folder = os.path.dirname(os.path.abspath(sys.argv[0]))
    with open(os.path.join(folder, "version"), encoding="ascii") as file:
        version = file.read().strip()
    if sys.argv[1:] == ["--version"]:
        say(version)
        return 0
    if sys.argv[1:] == ["warmup"]:
        root = os.path.dirname(folder)
        os.makedirs(os.path.join(root, "_diag"), exist_ok=True)
        for name in ("_diag\\Runner_20260101-000000-utc.log", "warmed-up"):
            with open(os.path.join(root, name), "w", encoding="ascii") as file:
                file.write("warmed up\n")
        return 0
    settings = os.environ.pop("ACTIONS_RUNNER_INPUT_JITCONFIG")
    return Listener(json.loads(base64.b64decode(settings)), version).run()


if __name__ == "__main__":
    sys.exit(main())

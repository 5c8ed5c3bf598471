"""A Kubernetes cluster on this host: etcd, API server, controllers, scheduler, and kwok's nodes."""

import json
import secrets
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from lab.kubernetes import servers
from lab.kubernetes.credentials import Credentials
from lab.kubernetes.processes import ProgramFailedError, RunningProgram
from lab.ports import free_ports

_TRIES = 3
_PAUSE = 0.05
"""Seconds between two looks at whether the cluster is ready."""


class Cluster:
    """One cluster with its own ports, certificates and data, in a folder of its own.

    `start` and `close` block. `close` ends exactly the processes that `start` began.
    """

    def __init__(self, folder: Path, patience: float = 600.0) -> None:
        """`patience` is how long `start` waits, in seconds: it only keeps a broken cluster from hanging."""
        self.folder = folder
        self.credentials = Credentials(folder)
        self.url = ""
        self._etcd = 0
        self._patience = patience
        self._programs: dict[str, RunningProgram] = {}

    def start(self) -> None:
        """Start everything and wait until pods can be created.

        Raises ProgramMissingError, ProgramFailedError, TimeoutError.
        """
        for left in reversed(range(_TRIES)):
            try:
                self._start_servers()
                break
            except ProgramFailedError:
                # Another process may have taken a port.
                self.close()
                if not left:
                    raise
        url, credentials = self.url, self.credentials
        self._run("controller-manager", servers.controller_manager(credentials, url))
        self._run("scheduler", servers.scheduler(credentials, url))
        self._run("kwok", servers.kwok(credentials, url))
        self._wait_for("/api/v1/namespaces/default/serviceaccounts/default")

    def close(self) -> None:
        """End all programs. Idempotent."""
        for program in reversed(list(self._programs.values())):
            program.kill()
        self._programs.clear()

    def stop_api_server(self) -> None:
        """Kill the API server."""
        self._programs["api-server"].kill()

    def start_api_server(self) -> None:
        """Start the API server again, wait until it serves, and start a new scheduler.

        The old one tries again after up to half a minute. Meanwhile it does not know new nodes, and refuses
        pods for them.
        """
        self._programs["scheduler"].kill()
        self._programs["api-server"].start()
        self._wait_for("/readyz")
        self._programs["scheduler"].start()

    def compact(self) -> None:
        """Have etcd forget all versions so far, as the API server has it do every five minutes.

        An API server that starts afterwards answers 410 to each watch from before, because writing a key makes
        even the last version an earlier one (etcd's gateway: `/v3/kv/put`, `/v3/kv/compaction`).
        """
        written = self._ask_etcd("put", {"key": "bGFi", "value": "bGFi"})
        revision = written["header"]["revision"]
        self._ask_etcd("compaction", {"revision": revision, "physical": True})

    def kubeconfig(self, name: str, token: str, namespace: str = "default") -> Path:
        """Write a kubeconfig for a token, with one context of this name; return its path."""
        return self.credentials.kubeconfig(name, self.url, token, namespace)

    def audit_events(self) -> list[dict[str, Any]]:
        """Return all events of the API server's audit log so far. It is written after the answers."""
        # The last line may be incomplete, and one that the API server was writing when it was killed.
        lines = (self.folder / "audit.log").read_text().split("\n")[:-1]
        return [
            json.loads(line)
            for line in lines
            if line.endswith("}") and line.count('"auditID"') == 1
        ]

    def all_audit_events(self) -> list[dict[str, Any]]:
        """Return the events of the audit log, once a request of this moment is among them.

        Raises TimeoutError, ProgramFailedError.
        """
        mark = f"/readyz?mark={secrets.token_hex(8)}"
        self._wait_for(mark)
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            events = self.audit_events()
            if any(one["requestURI"] == mark for one in events):
                return events
            time.sleep(_PAUSE)
        raise TimeoutError(f"the audit log lacks a request; it is in {self.folder}")

    def _start_servers(self) -> None:
        ports = servers.Ports(*free_ports(3))
        self.url, self._etcd = f"https://127.0.0.1:{ports.api}", ports.etcd
        self._run("etcd", servers.etcd(ports, self.folder))
        self._run("api-server", servers.api_server(ports, self.folder, self.credentials))
        self._wait_for("/readyz")

    def _ask_etcd(self, request: str, body: dict[str, Any]) -> Any:
        """Return etcd's answer to a request about its keys."""
        url = f"http://127.0.0.1:{self._etcd}/v3/kv/{request}"
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with direct.open(url, json.dumps(body).encode(), timeout=self._patience) as answer:
            return json.load(answer)

    def _run(self, name: str, command: list[str]) -> None:
        self._programs[name] = RunningProgram(command, self.folder / f"{name}.log")
        self._programs[name].start()

    def _wait_for(self, path: str) -> None:
        """Wait until a GET of this path succeeds."""
        headers = {"Authorization": f"Bearer {self.credentials.tokens['admin']}"}
        request = urllib.request.Request(self.url + path, headers=headers)  # noqa: S310
        context = ssl.create_default_context(cafile=str(self.credentials.ca))
        direct = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        deadline = time.monotonic() + self._patience
        while time.monotonic() < deadline:
            for program in self._programs.values():
                program.check()
            try:
                with direct.open(request, timeout=self._patience):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(_PAUSE)
        raise TimeoutError(f"the cluster does not serve {path}; its logs are in {self.folder}")

"""Serves the logs of containers to the API server, as kubelet does: `/containerLogs/NAMESPACE/POD/CONTAINER`.

Sources: kubelet's `pkg/kubelet/server/server.go` (`getContainerLogs`), `pkg/kubelet/kubelet_pods.go`
(`validateContainerLogStatus`), and k8s.io/cri-client's `pkg/logs/logs.go` (`tailLines` before `limitBytes`).
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from aiohttp import web

from lab.kubernetes.containers import Runtime
from lab.kubernetes.credentials import Credentials

FindPod = Callable[[str, str], Mapping[str, Any] | None]
"""Returns the kubelet's pod with this namespace and name, or None."""


class KubeletLogs:
    """An HTTPS server on a free port of loopback. Use it as an async context manager.

    It has the certificate of the API server, which is for 127.0.0.1, and asks for none.
    """

    def __init__(self, credentials: Credentials, runtime: Runtime, find: FindPod) -> None:
        self.port = 0
        self.silent: set[str] = set()
        """The names of containers whose log is never sent: their node has lost its network."""
        self._credentials = credentials
        self._runtime = runtime
        self._find = find
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._answer)
        # A request without an answer ends with its client.
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )

    async def __aenter__(self) -> Self:
        """Listen."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self._credentials.certificate, self._credentials.key)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        namespace, name, container = (
            request.match_info[one] for one in ("namespace", "pod", "container")
        )
        if container in self.silent:
            await asyncio.Event().wait()
        pod = self._find(namespace, name)
        if pod is None:
            return web.Response(status=404, text=f'pod "{name}" does not exist')
        file = self._runtime.log_file(pod, container)
        if not file.exists():
            text = f'container "{container}" in pod "{name}" is waiting to start: PodInitializing'
            return web.Response(status=400, text=text)
        return web.Response(body=_part(file, request.query), content_type="text/plain")


def _part(file: Path, query: Mapping[str, str]) -> bytes:
    """Return the last `tailLines` of a log, and of these the first `limitBytes`."""
    lines = file.read_bytes().splitlines(keepends=True)
    kept = lines[max(0, len(lines) - int(query["tailLines"])) :] if "tailLines" in query else lines
    return b"".join(kept)[: int(query["limitBytes"]) if "limitBytes" in query else None]

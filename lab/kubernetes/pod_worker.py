"""Plays what kubelet does with one pod, from its binding to its end."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import aiohttp

from lab.kubernetes.admin import Administrator, RequestFailedError
from lab.kubernetes.containers import Container, Runtime
from lab.kubernetes.pod_statuses import (
    CANNOT_START,
    ContainerState,
    containers_of,
    has_devices,
    initialization_failed,
    pod_status,
    rejection,
    without_trace,
)

_STRATEGIC = "application/strategic-merge-patch+json"
"""Kubelet's kind of patch: conditions of others stay (`pkg/util/pod/pod.go`)."""

_RETRY = 0.5
"""Real seconds until a request is sent again that the API server did not answer."""


_NOT_YET = "not yet ready to handle request"
"""From k8s.io/apiserver's admission plugins, such as pkg/admission/plugin/namespace/lifecycle."""

_LEAST_GRACE = 2.0
"""Seconds from SIGTERM to SIGKILL, even if less of the grace period is left.

`minimumGracePeriodInSeconds` in kubelet's pkg/kubelet/kuberuntime/kuberuntime_container.go."""


class SidecarFailedError(Exception):
    """A sidecar cannot start. Kubelet would try again and again."""


class PodWorker:
    """One pod. `run` returns when its containers have ended, and the pod is deleted if that was asked for.

    `scale` is lab seconds per real second: the grace period is in lab seconds.
    """

    def __init__(
        self, admin: Administrator, runtime: Runtime, pod: Mapping[str, Any], scale: float
    ) -> None:
        self._admin = admin
        self._runtime = runtime
        self._pod = pod
        self.name: str = pod["metadata"]["name"]
        self._scale = scale
        self._path = "/api/v1/namespaces/{namespace}/pods/{name}".format(**pod["metadata"])
        self._specs = {one["name"]: one for key in _KEYS for one in pod["spec"].get(key) or ()}
        self._containers = containers_of(pod)
        self._running: dict[str, Container] = {}
        self._started = _now()
        self._stopping: asyncio.Task[None] | None = None
        self._rejected = False
        self._reporting = asyncio.Lock()

    async def run(self) -> None:
        """Run the init containers one after another, and then the others, unless the pod is deleted.

        A sidecar runs from its turn until the main containers have ended. Raises an ExceptionGroup with
        SidecarFailedError.
        """
        await self._make_volumes()
        await self._report()
        async with asyncio.TaskGroup() as sidecars:
            await self._initialize(sidecars)
            if not self._over:
                main = [one for one in self._containers if not one.init]
                await asyncio.gather(*(self._run_container(one) for one in main))
            if self._stopping is None:
                await self._stop(float(self._pod["spec"]["terminationGracePeriodSeconds"]))
        if self._stopping is not None:
            await self._stopping
            without_trace(self._containers, _now())
            await self._report()
            await self.delete()
        # Kubelet keeps the logs of a pod that has ended until the pod is deleted.
        over = self._runtime.remove_containers if self._stopping is None else self._runtime.remove
        await asyncio.to_thread(over, self._pod)

    def stop(self, grace: float) -> None:
        """Stop the containers, because the pod was deleted. `grace` is in seconds. Idempotent."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(grace))

    @property
    def stopping(self) -> asyncio.Task[None] | None:
        """The task that stops the containers, if the pod was deleted."""
        return self._stopping

    async def kill(self, *, out_of_memory: bool = False) -> None:
        """Kill all processes of the pod's containers."""
        for container in list(self._running.values()):
            await container.kill(out_of_memory=out_of_memory)

    async def admit_again(self, *, node_restarted: bool) -> None:
        """Do what a kubelet does with the pod when it starts again, or after its node has, with its containers.

        It spares the devices of containers that run. It allocates all others anew, and refuses the pod, because
        the device plugin has not registered yet (kubernetes/kubernetes#138446, #125579).
        """
        spared = [] if node_restarted else [*self._running]
        again = [spec for name, spec in self._specs.items() if name not in spared]
        self._rejected = any(map(has_devices, again))
        if self._rejected or node_restarted:
            await self.kill()

    @property
    def _over(self) -> bool:
        stopped = self._stopping is not None or self._rejected
        return stopped or initialization_failed(self._containers)

    async def _make_volumes(self) -> None:
        for volume in self._pod["spec"].get("volumes") or ():
            sources = (volume.get("projected") or {}).get("sources") or ()
            tokens = [one["serviceAccountToken"] for one in sources if "serviceAccountToken" in one]
            files = {one["path"]: await self._token(one) for one in tokens}
            self._runtime.make_volume(self._pod, volume["name"], files)

    async def _token(self, source: Mapping[str, Any]) -> str:
        """Return a token that is bound to the pod, as kubelet asks for it (TokenRequest API).

        Without an audience, kubelet names none, and the API server chooses its own (`collectData` in
        pkg/volume/projected/projected.go, `Create` in pkg/registry/core/serviceaccount/storage/token.go).
        """
        metadata, spec = self._pod["metadata"], self._pod["spec"]
        bound = {
            "kind": "Pod",
            "apiVersion": "v1",
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        wanted = {
            "audiences": [source["audience"]] if source.get("audience") else [],
            "expirationSeconds": source["expirationSeconds"],
            "boundObjectRef": bound,
        }
        account = spec.get("serviceAccountName", "default")
        path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
        answer = await self._insist("POST", path, {"spec": wanted})
        return str(answer["status"]["token"]) if answer is not None else ""

    async def _initialize(self, sidecars: asyncio.TaskGroup) -> None:
        """Run the init containers, and start the sidecars among them. Raises SidecarFailedError."""
        for state in self._containers:
            if not state.init or self._over:
                continue
            if not state.sidecar:
                await self._run_container(state)
            elif (container := await self._start(state)) is not None:
                sidecars.create_task(self._wait_for(state, container))
            else:
                raise SidecarFailedError(f"pod {self.name}: sidecar {state.name} cannot start")

    async def _run_container(self, state: ContainerState) -> None:
        container = await self._start(state)
        if container is not None:
            await self._wait_for(state, container)

    async def _start(self, state: ContainerState) -> Container | None:
        """Start a container. Return None if its command does not exist."""
        try:
            container = await self._runtime.start(self._pod, self._specs[state.name])
        except OSError:
            state.end(CANNOT_START, _now())
            await self._report()
            return None
        self._running[state.name] = container
        if self._stopping is not None or self._rejected:
            await container.kill()
        state.started = _now()
        await self._report()
        return container

    async def _wait_for(self, state: ContainerState, container: Container) -> None:
        """Wait for the end of a container, and report it."""
        status = await container.ended()
        del self._running[state.name]
        message = self._termination_message(self._specs[state.name]) if status else ""
        state.end(status, _now(), out_of_memory=container.out_of_memory, message=message)
        await self._report()

    def _termination_message(self, spec: Mapping[str, Any]) -> str:
        """Return the end of a failed container's log, if its policy says so.

        `getTerminationMessage` in kubelet's pkg/kubelet/kuberuntime/kuberuntime_container.go: 80 lines, and of
        them the last 2,048 bytes (pkg/kubelet/container/runtime.go).
        """
        if spec.get("terminationMessagePolicy") != "FallbackToLogsOnError":
            return ""
        lines = self._runtime.log_of(self._pod, spec["name"]).splitlines(keepends=True)
        return "".join(lines[-80:]).encode()[-2048:].decode(errors="replace")

    async def _stop(self, grace: float) -> None:
        """Stop the containers: the sidecars after the main ones, and in reverse order. `grace` is in seconds.

        They share the grace period. A regular init container is not waited for
        (`pkg/kubelet/kuberuntime/kuberuntime_termination_order.go`).
        """
        until = asyncio.get_running_loop().time() + grace / self._scale
        regular = [one.name for one in self._containers if one.init and not one.sidecar]
        main = [one.name for one in self._containers if not one.init]
        sidecars = [[one.name] for one in reversed(self._containers) if one.sidecar]
        await asyncio.gather(
            self._end_in_turn([regular], until), self._end_in_turn([main, *sidecars], until)
        )
        await self.kill()

    async def _end_in_turn(self, groups: Iterable[Sequence[str]], until: float) -> None:
        """Send SIGTERM to each group of containers in turn, and SIGKILL at `until` (time of the event loop)."""
        now = asyncio.get_running_loop().time
        for names in groups:
            running = [self._running[one] for one in names if one in self._running]
            for container in running:
                container.terminate()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(max(until, now() + _LEAST_GRACE / self._scale)):
                    await asyncio.gather(*(container.over.wait() for container in running))
            await asyncio.gather(
                *(container.kill() for container in running if not container.over.is_set())
            )

    async def _report(self) -> None:
        """Write the pod's status. A pod that does not exist any more needs none."""
        # One after another: an older status that is sent again must not replace a newer one.
        async with self._reporting:
            status = pod_status(self._containers, self._started, _now())
            if self._rejected:
                status = rejection()
            body = {"metadata": {"uid": self._pod["metadata"]["uid"]}, "status": status}
            await self._insist("PATCH", f"{self._path}/status", body, _STRATEGIC)

    async def delete(self) -> None:
        """Remove the stopped pod from the API server, as kubelet does at last."""
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self._pod["metadata"]["uid"]}}
        await self._insist("DELETE", self._path, body)

    async def _insist(
        self, method: str, path: str, body: Any, content_type: str = "application/json"
    ) -> Any:
        """Repeat a request until it is answered. Return None if there is no such pod any more."""
        while True:
            with suppress(aiohttp.ClientError, TimeoutError):
                try:
                    return await self._admin.request(method, path, body, content_type)
                except RequestFailedError as error:
                    if error.status in (404, 409):
                        return None
                    # 403: the admission plugins of a new API server read their first objects.
                    if error.status not in (429, 500, 503, 504) and _NOT_YET not in str(error):
                        raise
            await asyncio.sleep(_RETRY)


_KEYS = ("initContainers", "containers")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

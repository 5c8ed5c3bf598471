"""The README's way to a first job on Kubernetes, from an empty folder, with the real API server and scheduler.

The commands come from README.md. In the lab the addresses of GitHub and the cluster, and the ports differ. The
installation is that of the built wheel. `docker` only notes its words: tests/docker_images builds and runs the
image. `kubectl apply` is a request with the same objects. `gh`, the browser, the kubelet and its GPUs are
played. All of `autoscaler` is real.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import aiohttp
import pytest
import yaml

from lab.kubernetes.admin import Administrator
from lab.kubernetes.cluster import Cluster
from lab.kubernetes.containers import Runtime
from lab.kubernetes.kubelet import Kubelet
from lab.ports import free_ports
from tests.patience import PATIENCE
from tests.readme.commands import ROOT, Step, steps
from tests.readme.debian_host import PROGRAMS
from tests.readme.newcomer import Newcomer, newcomer, until_green
from tests.readme.typist import Shell, Typist, clean

CONTEXT = "my-context"
Show = Callable[[str, Typist], None]

pytestmark = pytest.mark.wait_limit(
    seconds=1800, reason="starts a cluster, and installs and runs a whole fleet"
)

COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
}


@contextmanager
def clone(folder: Path) -> Iterator[Path]:
    """Yield a folder with all files of this repository, in which a command makes its own."""
    made = folder / "clone"
    made.mkdir()
    for one in ROOT.iterdir():
        if not one.name.startswith(".") and one.name != "fleet":
            (made / one.name).symlink_to(one)
    yield made


@asynccontextmanager
async def cluster_with_gpus(folder: Path) -> AsyncIterator[tuple[Cluster, Administrator]]:
    """Start a cluster with a node that has eight GPUs, and runs the containers of its pods as processes."""
    place, containers = folder / "cluster", folder / "containers"
    for one in (place, containers):
        one.mkdir()
    cluster = Cluster(place, PATIENCE)
    try:
        await asyncio.to_thread(cluster.start)
        admin = Administrator(cluster)
        try:
            async with Kubelet(admin, Runtime(containers, 1.0), 1.0) as kubelet:
                await kubelet.add_node("gpu-node", {"nvidia.com/gpu": "8"})
                yield cluster, admin
        finally:
            await admin.close()
    finally:
        await asyncio.to_thread(cluster.close)


async def apply(admin: Administrator, command: str) -> None:
    """Do what `kubectl apply -f FILE ...` does for new objects."""
    words = command.split()
    assert words[:2] == ["kubectl", "apply"], command
    assert set(words[2::2]) == {"-f"}, command
    for file in words[3::2]:
        for body in yaml.safe_load_all((ROOT / file).read_text(encoding="utf-8")):
            namespace = body["metadata"].get("namespace", "")
            await admin.create(COLLECTIONS[body["kind"]].format(namespace), body)


class FirstPods:
    """Types the steps of the way on Kubernetes, in a clone of the repository."""

    def __init__(
        self, folder: Path, place: Path, installed: Path, cluster: Cluster, owner: Newcomer
    ) -> None:
        self.folder, self._place, self._owner = folder, place, owner
        self._public = f"https://127.0.0.1:{free_ports(1)[0]}"
        programs = folder / "programs"
        programs.mkdir()
        docker = programs / "docker"
        docker.write_text(f'#!/bin/sh\necho "$*" >> {folder}/docker.log\n')
        docker.chmod(0o755)
        kubeconfig = cluster.kubeconfig(CONTEXT, cluster.credentials.tokens["admin"])
        variables = clean(KUBECONFIG=str(kubeconfig))
        variables["PATH"] = f"{programs}:{installed / PROGRAMS}/bin:{variables['PATH']}"
        self.typist = Typist(Shell(("bash", "-c"), variables, place), {CONTEXT: CONTEXT})

    async def build_image(self, step: Step) -> None:
        for command in step.commands:
            await self.typist.type(command)
        built, pushed = (self.folder / "docker.log").read_text().splitlines()
        image = pushed.removeprefix("push ")
        assert built.startswith("build ")
        assert f"--tag {image}" in built.replace("=", " ")
        self.typist.step(step.title)

    async def init(self, step: Step) -> None:
        """Run `init` while the owner looks, and write what the step says of a cluster without Karpenter."""
        [command] = step.commands
        place = f" --api-url {self._owner.github.api_url} --public-url {self._public}"
        output = await self.typist.type(self.typist.filled(command) + place, self._owner.look)
        assert "Left to do, in this order:" in output
        assert "`provisioner: false`" in step.text
        file = self._place / "fleet" / "fleet.yaml"
        text, count = re.subn(
            r"(namespace: [\w\"]+)\}", r"\1, provisioner: false}", file.read_text()
        )
        assert count == 1, text
        file.write_text(text)
        self.typist.step(step.title)

    @asynccontextmanager
    async def serving(self, step: Step) -> AsyncIterator[list[str]]:
        """Type the commands of a step, of which the last one serves. Yield its output once it is ready."""
        *before, serve = step.commands
        for command in before:
            await self.typist.type(command)
        printed: list[str] = []

        async def note(line: str) -> None:
            printed.append(line)

        serving = asyncio.create_task(self.typist.attempt(f"exec {serve}", note))
        try:
            async with asyncio.timeout(PATIENCE):
                while not await self._is_ready():
                    assert not serving.done(), "".join(printed)
                    await asyncio.sleep(0.2)
            self.typist.step(step.title)
            yield printed
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    async def _is_ready(self) -> bool:
        trust = ssl.create_default_context(cafile=str(self._place / "fleet" / "ca.pem"))
        with suppress(aiohttp.ClientConnectionError):
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{self._public}/readyz", ssl=trust) as answer,
            ):
                return answer.status == 200
        return False


async def test_a_job_runs_in_a_pod(folder: Path, installed: Path, show: Show) -> None:
    image, namespace, init, run, job = steps("### On Kubernetes")
    [label] = re.findall(r"`runs-on: (\[.+?\])`", job.text)
    async with cluster_with_gpus(folder) as (cluster, admin), newcomer() as owner:
        with clone(folder) as place:
            first = FirstPods(folder, place, installed, cluster, owner)
            await first.build_image(image)
            for command in namespace.commands:
                await apply(admin, command)
            first.typist.step(namespace.title)
            await first.init(init)
            async with first.serving(run) as printed:
                await until_green(owner.start_workflow(yaml.safe_load(label)), printed)
                first.typist.step(job.title)
    show("Kubernetes", first.typist)

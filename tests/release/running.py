"""The stages of `make release-check` that run what was built: the program, the chart, the image."""

import asyncio
import json
import os
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import yaml

from lab.kubernetes.programs import find
from scripts.release import NAME, package_chart, version, write_sums
from tests.deploy.helm import helm
from tests.deploy.manifests import fleet, mounts
from tests.deploy.pod_files import free_ports, write_certificate, write_fleet, write_secrets
from tests.docker_images.workshop import Workshop, open_workshop
from tests.patience import PATIENCE
from tests.release.building import Site, StageError, install_packages, run

REGISTRY = "ghcr.io/acme"


def run_commands(site: Site) -> str:
    """Run the commands that need no configuration and those that read the project's own files."""
    program = str(site.programs / "autoscaler")
    printed = run(program, "version", folder=site.folder).strip()
    if printed != version(site.source):
        raise StageError(f"`autoscaler version` of the wheel prints {printed!r}")
    example = str(site.source / "examples" / "first.yaml")
    run(program, "check", "--skip-files", example, folder=site.folder)
    for words in (["alerts"], ["images", "values", "VERSION=runner.version"], ["init", "--help"]):
        run(program, *words, folder=site.folder)
    return "version, check, alerts, images values, init --help"


def write_demo(site: Site) -> str:
    """Add the extra `demo` to the environment, and have the program write a demo that it then checks."""
    install_packages(site, "--extra", "demo")
    program, folder = str(site.programs / "autoscaler"), site.folder / "demo"
    printed = run(program, "init", "--demo", str(folder), folder=site.folder)
    if "autoscaler-lab" not in printed:
        raise StageError(f"`autoscaler init --demo` does not say how to go on:\n{printed}")
    run(program, "check", "--skip-files", str(folder / "fleet.yaml"), folder=site.folder)
    return ", ".join(sorted(one.name for one in folder.iterdir()))


def serve(site: Site) -> str:
    """Serve the manifests' fleet.yaml: /readyz waits for a GitHub that does not answer."""
    root = site.folder / "pod"
    *chosen, closed = free_ports(3)
    ports = dict(zip(("bootstrap", "webhook"), chosen, strict=True))
    write_secrets(root)
    asyncio.run(write_certificate(root))
    write_fleet(root, ports, closed)
    for name in ("store", "tmp"):
        (root / str(mounts()[name]).lstrip("/")).mkdir(parents=True)
    file = root / str(mounts()["fleet"]).lstrip("/") / "fleet.yaml"
    aws = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{closed}", "AWS_ACCESS_KEY_ID": "x"}
    variables = {"PATH": os.defpath, "HOME": "/nonexistent", "AWS_SECRET_ACCESS_KEY": "x", **aws}
    log = site.folder / "serve.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [site.programs / "autoscaler", "serve", "-c", file],
            env=variables,
            stdout=output,
            stderr=output,
        )
        try:
            authority = root / fleet()["server"]["tls"]["ca_file"].lstrip("/")
            return _served(process, ports["bootstrap"], authority, log)
        finally:
            process.kill()
            process.wait(PATIENCE)


def _served(process: subprocess.Popen[bytes], port: int, authority: Path, log: Path) -> str:
    trust = ssl.create_default_context(cafile=str(authority))
    end = time.monotonic() + PATIENCE
    answer = None
    while answer is None:
        try:
            answer = _get(f"https://localhost:{port}/readyz", trust)
        except urllib.error.URLError:
            if process.poll() is not None or time.monotonic() > end:
                raise StageError(f"the controller does not answer:\n{log.read_text()}") from None
            time.sleep(0.1)
    status, text = answer
    if status != 503 or "GitHub has not answered yet" not in json.loads(text)["reasons"]:
        raise StageError(f"/readyz answers {status}: {text}")
    status, text = _get(f"https://localhost:{port}/", trust)
    if 'action="/sign-in"' not in text:
        raise StageError(f"the console's sign-in page answers {status}: {text[:500]}")
    return "/readyz and the console's sign-in page"


def _get(url: str, trust: ssl.SSLContext) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, context=trust, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def render_chart(site: Site) -> str:
    """Package the chart, and render the package: the image is that of this release."""
    released = version(site.source)
    package_chart(site.source, site.dist, str(find("helm")), REGISTRY)
    write_sums(site.dist)
    package = site.dist / f"{NAME}-{released}.tgz"
    values = {"fleet": "fleet: first\n"}
    rendered = helm("template", NAME, package, "--namespace", NAME, values=values)
    objects = [one for one in yaml.safe_load_all(rendered) if one is not None]
    [pod] = [one["spec"]["template"]["spec"] for one in objects if one["kind"] == "StatefulSet"]
    images = [one["image"] for one in pod["containers"]]
    if images != [f"{REGISTRY}/{NAME}:{released}"]:
        raise StageError(f"the chart {released} installs {images}")
    return f"{REGISTRY}/{NAME}:{released}"


def build_image(site: Site) -> str:
    """Build the controller's image twice, on a base image of this host, and compare both."""
    if os.geteuid() != 0:
        raise StageError("images are built as root only; run: sudo make release-check")
    time_of_commit = run("git", "log", "-1", "--format=%ct", folder=site.source).strip()
    with open_workshop() as workshop:
        versions = workshop.versions(site.folder, "controller")
        digests = [_build(workshop, versions, time_of_commit) for _ in range(2)]
        size = workshop.buildah("inspect", "--type", "image", "localhost/controller:tests")
    if len(set(digests)) != 1:
        raise StageError(f"two builds of one commit differ: {' and '.join(digests)}")
    labels = json.loads(size)["OCIv1"]["config"]["Labels"]
    if labels["org.opencontainers.image.version"] != version(site.source):
        raise StageError(f"the image's labels name another version: {labels}")
    return f"{digests[0]}, twice"


def _build(workshop: Workshop, versions: Path, timestamp: str) -> str:
    """Build without the layers of the earlier build. Return the digest of the image's manifest."""
    options = ("--no-cache", "--timestamp", timestamp)
    done = workshop.build("controller", versions, *options)
    if done.returncode:
        raise StageError(done.stdout)
    name = "localhost/controller:tests"
    return workshop.buildah("images", "--format", "{{.Digest}}", name)

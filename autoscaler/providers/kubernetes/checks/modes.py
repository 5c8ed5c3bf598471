"""Checks the container modes of pods in fleet.yaml. Reads the file as written."""

from collections import Counter
from collections.abc import Iterator

from autoscaler.config.checks import text
from autoscaler.config.document import Document, Node
from autoscaler.config.problems import KeyPath, Problem, show
from autoscaler.config.provider_kind import options_of, sections_of
from autoscaler.model.wording import counted
from autoscaler.providers.kubernetes.checks.contradictions import KEY

_Option = tuple[KeyPath, Node, Node]
"""The path of a launch option's pod, the SKU, and the pod."""


def contradictions(document: Document) -> Iterator[Problem]:
    """Return the contradictions between keys."""
    for path, _, pod in _pods(document):
        mode = pod.child("container_mode")
        if mode is not None and (mode.child("dind") is None) == (mode.child("kubernetes") is None):
            what, fix = "needs one of dind and kubernetes", "write one of them"
            yield document.problem((*path, "container_mode"), what, fix)
    yield from _accelerators(document)
    yield from _namespaces(document)


def warnings(document: Document) -> Iterator[Problem]:
    """Return what a job can do in each container mode."""
    namespaces = {name: text(section, "namespace") for name, section in sections_of(document, KEY)}
    for path, sku, option in _options(document):
        namespace = show(namespaces[text(option, "provider") or ""] or "")
        if option.get("pod", "container_mode", "dind") is not None:
            what = f"is a privileged container: namespace {namespace} must enforce Pod Security privileged"
            fix = "run only jobs there that may use every device of the node"
            yield document.problem((*path, "container_mode", "dind"), what, fix, warning=True)
        if option.get("pod", "container_mode", "kubernetes") is not None:
            what = f"gives the runner rights to the pods and Secrets of namespace {namespace}"
            fix = "keep everything else out of this namespace"
            yield document.problem((*path, "container_mode", "kubernetes"), what, fix, warning=True)
            if sku.child("accelerator") is not None:
                what = "checks the accelerators after the runner got a job: a faulty one fails this job"
                fix = "where one image serves all jobs, make it that of the pod, without container_mode"
                yield document.problem(
                    (*path, "container_mode", "kubernetes"), what, fix, warning=True
                )
    yield from _weakened_namespaces(document)


def _options(document: Document) -> Iterator[_Option]:
    for name, sku, index, option in options_of(document, KEY):
        yield ("skus", name, "on", index, "pod"), sku, option


def _pods(document: Document) -> Iterator[_Option]:
    for path, sku, option in _options(document):
        pod = option.child("pod")
        if pod is not None:
            yield path, sku, pod


def _has_hooks(pod: Node) -> bool:
    return pod.get("container_mode", "kubernetes") is not None


def _accelerators(document: Document) -> Iterator[Problem]:
    """Check that the containers of jobs can have what they are to have.

    A rootless daemon needs the NVIDIA Container Toolkit beside it, either with device descriptions (CDI) in its
    own namespaces (moby/moby#47676) or with `no-cgroups` (NVIDIA/nvidia-container-toolkit#85). The images
    `docker:dind-rootless` are Alpine Linux without it (docker-library/docker, `29/dind-rootless/Dockerfile`).
    With a volume, the hooks put the job's pod on the node of the runner's pod, past the scheduler
    (actions/runner-container-hooks 0.7.0, `createPod`).
    """
    for path, sku, pod in _pods(document):
        has_accelerator = sku.child("accelerator") is not None
        if has_accelerator and pod.get("container_mode", "dind") is not None:
            what = (
                "gives the containers of jobs no accelerators: nothing configures a rootless daemon for them, "
                "and its privileged container could use those of other pods, too"
            )
            fix = "use container_mode: {kubernetes: ...}, or make the job's image that of the pod"
            yield document.problem((*path, "container_mode", "dind"), what, fix)
        mode = pod.get("container_mode", "kubernetes")
        if mode is None or mode.child("work_volume") is None:
            continue
        if has_accelerator or mode.child("resources") is not None:
            what = (
                "puts the job's pod on the node of the runner's pod, where nothing keeps the job's "
                + ("accelerators" if has_accelerator else "resources")
                + " free"
            )
            fix = "remove it: the hooks then copy the work folder, and the scheduler finds a node"
            yield document.problem(
                (*path, "container_mode", "kubernetes", "work_volume"), what, fix
            )


def _namespaces(document: Document) -> Iterator[Problem]:
    """Check that pods with rights are alone: the hooks could run commands in other pods of the namespace."""
    hooked: set[str] = set()
    for _, _, option in _options(document):
        if option.get("pod", "container_mode", "kubernetes") is not None:
            hooked.add(text(option, "provider") or "")
    for path, _, option in _options(document):
        provider = text(option, "provider") or ""
        pod = option.child("pod")
        if provider in hooked and pod is not None and not _has_hooks(pod):
            what = f"other pods of provider {show(provider)} could run commands in these pods"
            fix = (
                "write container_mode: {kubernetes: ...}, or use a provider with another namespace"
            )
            yield document.problem(path, what, fix)


def _weakened_namespaces(document: Document) -> Iterator[Problem]:
    """Warn of namespaces that must let privileged pods in, and also have pods that need no privilege.

    No job gets more by this: the other pods pass `restricted` (`pod_security`), and their jobs may not create
    pods. But the namespace no longer stops other tools that create pods there. So it is a warning.
    """
    dind: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for _, _, option in _options(document):
        found = dind if option.get("pod", "container_mode", "dind") is not None else others
        found[text(option, "provider") or ""] += 1
    for provider in sorted(dind.keys() & others.keys()):
        options = counted(others[provider], "launch option")
        what = (
            "must allow the privileged pods of dind, so it cannot enforce Pod Security restricted for "
            f"the other {options}"
        )
        fix = "give the launch options with dind a provider with another namespace"
        path = ("providers", provider, KEY, "namespace")
        yield document.problem(path, what, fix, warning=True)

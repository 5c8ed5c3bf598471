"""Checks the container modes of pods in fleet.yaml."""

from collections import Counter
from collections.abc import Iterator

from autoscaler.config.configuration import Configuration, run_checks
from autoscaler.config.problems import Problem, show
from autoscaler.model.wording import counted
from autoscaler.providers.kubernetes.checks.contradictions import PodOf, pod_of, pods_of
from autoscaler.providers.kubernetes.configuration import KEY


def check(configuration: Configuration) -> Iterator[Problem]:
    """Return the contradictions between keys, and warnings about what a job can do in each container mode."""
    checks = (_one_mode, _dind, _kubernetes, _faulty_accelerator, _no_accelerators, _work_volume)
    for one in pods_of(configuration):
        yield from run_checks(checks, configuration, one)
    yield from _namespaces(configuration)
    yield from _weakened_namespaces(configuration)


def _has_hooks(one: PodOf) -> bool:
    mode = getattr(getattr(one.option, "pod", None), "container_mode", None)
    return getattr(mode, "kubernetes", None) is not None


def _has_accelerator(one: PodOf) -> bool:
    return "accelerator" in one.sku.model_fields_set


def _one_mode(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    mode = pod_of(one).container_mode
    if mode is not None and (mode.dind is None) == (mode.kubernetes is None):
        what, fix = "needs one of dind and kubernetes", "write one of them"
        yield configuration.error((*one.path, "pod", "container_mode"), what, fix)


def _dind(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    if pod_of(one).dind is not None:
        namespace = show(one.section.namespace)
        what = (
            f"is a privileged container: namespace {namespace} must enforce Pod Security privileged"
        )
        fix = "run only jobs there that may use every device of the node"
        yield configuration.warning((*one.path, "pod", "container_mode", "dind"), what, fix)


def _kubernetes(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    if _has_hooks(one):
        namespace = show(one.section.namespace)
        what = f"gives the runner rights to the pods and Secrets of namespace {namespace}"
        fix = "keep everything else out of this namespace"
        yield configuration.warning((*one.path, "pod", "container_mode", "kubernetes"), what, fix)


def _faulty_accelerator(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    if _has_hooks(one) and _has_accelerator(one):
        what = "checks the accelerators after the runner got a job: a faulty one fails this job"
        fix = "where one image serves all jobs, make it that of the pod, without container_mode"
        yield configuration.warning((*one.path, "pod", "container_mode", "kubernetes"), what, fix)


def _no_accelerators(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    """Check that the containers of jobs can have accelerators.

    A rootless daemon needs the NVIDIA Container Toolkit beside it, either with device descriptions (CDI) in its
    own namespaces (moby/moby#47676) or with `no-cgroups` (NVIDIA/nvidia-container-toolkit#85). The images
    `docker:dind-rootless` are Alpine Linux without it (docker-library/docker, `29/dind-rootless/Dockerfile`).
    """
    if pod_of(one).dind is not None and _has_accelerator(one):
        what = (
            "gives the containers of jobs no accelerators: nothing configures a rootless daemon for them, "
            "and its privileged container could use those of other pods, too"
        )
        fix = "use container_mode: {kubernetes: ...}, or make the job's image that of the pod"
        yield configuration.error((*one.path, "pod", "container_mode", "dind"), what, fix)


def _work_volume(configuration: Configuration, one: PodOf) -> Iterator[Problem]:
    """Check that the containers of jobs can have their resources.

    With a volume, the hooks put the job's pod on the node of the runner's pod, past the scheduler
    (actions/runner-container-hooks 0.7.0, `createPod`).
    """
    hooks = pod_of(one).hooks
    if hooks is None or "work_volume" not in hooks.model_fields_set:
        return
    if _has_accelerator(one) or "resources" in hooks.model_fields_set:
        what = (
            "puts the job's pod on the node of the runner's pod, where nothing keeps the job's "
            + ("accelerators" if _has_accelerator(one) else "resources")
            + " free"
        )
        fix = "remove it: the hooks then copy the work folder, and the scheduler finds a node"
        path = (*one.path, "pod", "container_mode", "kubernetes", "work_volume")
        yield configuration.error(path, what, fix)


def _namespaces(configuration: Configuration) -> Iterator[Problem]:
    """Check that pods with rights are alone: the hooks could run commands in other pods of the namespace."""
    hooked = {one.option.provider for one in pods_of(configuration) if _has_hooks(one)}
    for one in pods_of(configuration):
        provider = one.option.provider
        if provider in hooked and "pod" in one.option.model_fields_set and not _has_hooks(one):
            what = f"other pods of provider {show(provider)} could run commands in these pods"
            fix = (
                "write container_mode: {kubernetes: ...}, or use a provider with another namespace"
            )
            yield configuration.error((*one.path, "pod"), what, fix)


def _weakened_namespaces(configuration: Configuration) -> Iterator[Problem]:
    """Warn of namespaces that must let privileged pods in, and also have pods that need no privilege.

    The other pods pass `restricted` without an overlay, and their jobs may not create pods. But the namespace
    no longer judges overlays, and stops no other tool that creates pods there.
    """
    dind: Counter[str] = Counter()
    others: Counter[str] = Counter()
    for one in pods_of(configuration):
        mode = getattr(getattr(one.option, "pod", None), "container_mode", None)
        found = dind if getattr(mode, "dind", None) is not None else others
        found[one.option.provider] += 1
    for provider in sorted(dind.keys() & others.keys()):
        options = counted(others[provider], "launch option")
        what = (
            "must allow the privileged pods of dind, so it cannot enforce Pod Security restricted for "
            f"the other {options}"
        )
        fix = "give the launch options with dind a provider with another namespace"
        path = ("providers", provider, KEY, "namespace")
        yield configuration.warning(path, what, fix)

"""What `check` says about the container modes of pods in fleet.yaml."""

from pathlib import Path

import pytest

from tests.config.fleet_file import Folder, pods
from tests.config.test_kubernetes_contradictions import POD, SKU

DIND = "{image: i, container_mode: {dind: {image: d}}}"
HOOKS = "{image: i, container_mode: {kubernetes: {service_account: hooks}}}"
MODE = "skus.gpu.on[0].pod.container_mode"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.parametrize(
    ("changes", "key", "what", "fix"),
    [
        (
            [(POD, "{image: i, container_mode: {}}")],
            MODE,
            "needs one of dind and kubernetes",
            "write one of them",
        ),
        (
            [(POD, HOOKS.replace("{kub", "{dind: {image: d}, kub"))],
            MODE,
            "needs one of dind and kubernetes",
            "write one of them",
        ),
        (
            [(POD, HOOKS), (SKU, f"    accelerator: {{vendor: amd, count: 1}}\n{SKU}")],
            f"{MODE}.kubernetes",
            "which do not have the accelerators of the runner's pod",
            "use dind",
        ),
        (
            [(POD, f"{HOOKS}}}\n      - {{provider: cluster, pod: {{image: i}}")],
            "skus.gpu.on[1].pod",
            'other pods of provider "cluster" could run commands in these pods',
            "use a provider with another namespace",
        ),
    ],
    ids=["neither", "both", "accelerator", "mixed"],
)
def test_each_message_names_the_key_and_a_fix(
    folder: Folder, changes: list[tuple[str, str]], key: str, what: str, fix: str
) -> None:
    problem = folder.problem(pods(*changes))
    assert problem.key == key
    assert what in problem.what
    assert fix in problem.fix


def test_check_says_that_a_docker_daemon_is_privileged(folder: Folder) -> None:
    [warning] = folder.load(pods((POD, DIND))).warnings
    assert warning.key == f"{MODE}.dind"
    assert 'namespace "runners" must enforce Pod Security privileged' in warning.what


def test_check_says_that_a_docker_daemon_weakens_the_namespace_of_other_pods(
    folder: Folder,
) -> None:
    options = f"{DIND}}}\n      - {{provider: cluster, pod: {{image: i}}"
    first, second = folder.load(pods((POD, options))).warnings
    assert first.key == f"{MODE}.dind"
    assert second.key == "providers.cluster.kubernetes.namespace"
    assert "cannot enforce Pod Security restricted for the other 1 launch option" in second.what
    assert "another namespace" in second.fix


def test_a_docker_daemon_weakens_no_namespace_of_another_provider(folder: Folder) -> None:
    section = "{context: c, namespace: runners}"
    other = f"{section}\n  trusted:\n    kubernetes: {{context: c, namespace: docker}}"
    options = f"{{image: i}}}}\n      - {{provider: trusted, pod: {DIND}"
    [warning] = folder.load(pods((section, other), (POD, options))).warnings
    assert warning.key == "skus.gpu.on[1].pod.container_mode.dind"
    assert 'namespace "docker" must enforce' in warning.what


def test_check_says_what_the_hooks_may_do(folder: Folder) -> None:
    [warning] = folder.load(pods((POD, HOOKS))).warnings
    assert warning.key == f"{MODE}.kubernetes"
    assert 'rights to the pods and Secrets of namespace "runners"' in warning.what


def test_an_overlay_is_checked_with_the_containers_of_the_mode(folder: Folder) -> None:
    overlay = "overlay: {spec: {initContainers: [{name: dind, restartPolicy: null}]}}"
    text = pods((POD, DIND.replace("{image: i", f"{{image: i, {overlay}")))
    [problem] = folder.refused(text)
    assert problem.key == "skus.gpu.on[0].pod.overlay.spec.initContainers[0].restartPolicy"
    assert "spec.initContainers[dind].restartPolicy: must stay 'Always'" in problem.what

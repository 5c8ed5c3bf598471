"""The status of a pod that the lab's kubelet reports, with sidecars."""

from typing import Any

import pytest

from lab.kubernetes.pod_statuses import ContainerState, containers_of, phase_of, pod_status

AT = "2026-11-27T12:00:00Z"
POD = {
    "spec": {
        "initContainers": [
            {"name": "proxy", "image": "i", "restartPolicy": "Always"},
            {"name": "fetch", "image": "i"},
        ],
        "containers": [{"name": "runner", "image": "i"}],
    }
}


def states(**exits: int | None) -> list[ContainerState]:
    """The containers: None for one that runs. One that is not named has not started."""
    found = containers_of(POD)
    for one in found:
        if one.name in exits:
            one.started = AT
            code = exits[one.name]
            if code is not None:
                one.end(code, AT)
    return found


@pytest.mark.parametrize(
    ("exits", "phase"),
    [
        ({}, "Pending"),
        ({"proxy": None}, "Pending"),
        ({"proxy": None, "fetch": 1}, "Pending"),
        ({"proxy": 0, "fetch": 1}, "Failed"),
        ({"proxy": None, "fetch": 0}, "Pending"),
        ({"proxy": None, "fetch": 0, "runner": None}, "Running"),
        ({"proxy": None, "fetch": 0, "runner": 0}, "Running"),
        ({"proxy": 137, "fetch": 0, "runner": None}, "Running"),
        ({"proxy": 137, "fetch": 0, "runner": 0}, "Succeeded"),
        ({"proxy": 0, "fetch": 0, "runner": 1}, "Failed"),
    ],
    ids=str,
)
def test_a_sidecar_delays_the_final_phase_and_does_not_decide_it(
    exits: dict[str, int | None], phase: str
) -> None:
    assert phase_of(states(**exits)) == phase


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {one["type"]: (one["status"], one.get("message", "")) for one in status["conditions"]}


def test_a_running_sidecar_is_initialized_and_ready() -> None:
    status = pod_status(states(proxy=None), AT, AT)
    proxy, fetch = status["initContainerStatuses"]
    assert (proxy["started"], proxy["ready"]) == (True, True)
    assert (fetch["started"], fetch["ready"]) == (False, False)
    message = "containers with incomplete status: [fetch]"
    assert conditions(status)["Initialized"] == ("False", message)


def test_a_pod_whose_sidecar_has_ended_is_not_ready() -> None:
    status = pod_status(states(proxy=1, fetch=0, runner=None), AT, AT)
    assert conditions(status)["Initialized"] == ("True", "")
    assert conditions(status)["Ready"] == ("False", "containers with unready status: [proxy]")

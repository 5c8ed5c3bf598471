"""What the provider asks of the API server: each request exactly as it is sent.

tests/cluster sends the same requests to a real API server.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from autoscaler.controller.ports.provider import LaunchOrder, OutcomeUnknownError, ProviderError
from autoscaler.model.identifiers import (
    InstallationId,
    LaunchRequestId,
    ProviderMachineId,
    SkuName,
)
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.kubernetes.api import paths
from autoscaler.providers.kubernetes.api.errors import FORBIDDEN, NOT_READY
from autoscaler.providers.kubernetes.deletion import delete_left_pods
from autoscaler.providers.kubernetes.identity import ownership
from autoscaler.providers.kubernetes.identity.tokens import POD_NAME, POD_UID, verify_token
from autoscaler.providers.kubernetes.launching import dry_run, launch_pods, launch_text
from autoscaler.providers.kubernetes.notices.watch import WATCH_SECONDS, PodWatch
from autoscaler.providers.kubernetes.protection import protect_pod
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from autoscaler.providers.kubernetes.settings import KubernetesSettings
from tests.providers.doubles import ManualClock, RememberingTelemetry
from tests.providers.kubernetes_pods import (
    OPTION,
    SKU,
    hooks,
    make_order,
    make_pod,
    make_settings,
    with_changes,
)

PODS = "/api/v1/namespaces/runners/pods"
UID = "4b3f0a1e"
NAME = "ci-0123456789abcdef-0"
KEPT = "karpenter.sh/do-not-disrupt"
POD = ProviderMachineId(f"{NAME}.{UID}")
EMPTY: dict[str, Any] = {"metadata": {"resourceVersion": "5"}, "items": []}
GONE = ProviderError(FailureClass.UNKNOWN, "NotFound", "no such pod")


@dataclass
class RecordingApi:
    """An `ApiServer` that gives the answers in their order. An answer that is an error is raised."""

    answers: list[Any]
    asked: list[tuple[str, str, Mapping[str, str] | None, Any]] = field(default_factory=list)
    readiness: ProviderError | None = None
    """The answer of `/readyz`, if it is an error."""

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        self.asked.append((method, path, query, body))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        assert path == paths.READINESS
        if self.readiness is not None:
            raise self.readiness
        return "ok"

    @asynccontextmanager
    async def lines(
        self, path: str, query: Mapping[str, str], limit: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self.asked.append(("GET", path, query, limit))
        yield no_lines()

    async def close(self) -> None: ...


async def no_lines() -> AsyncIterator[bytes]:
    for line in list[bytes]():
        yield line


def make_provider(api: RecordingApi, settings: KubernetesSettings | None = None) -> Any:
    return KubernetesProvider(
        settings or make_settings(), RememberingTelemetry(), ManualClock(), api
    )


async def test_only_the_pod_with_this_uid_is_deleted_or_annotated() -> None:
    """Another pod may have the name by now (Kubernetes documentation, "Object Names and IDs")."""
    api = RecordingApi([{}, make_pod({"phase": "Running"})])
    await make_provider(api).terminate([POD])
    await protect_pod(api, "runners", POD)
    annotations = {"gpu-runner-autoscaler/assigned": "true", "karpenter.sh/do-not-disrupt": "true"}
    assert api.asked == [
        ("DELETE", f"{PODS}/{NAME}", None, {"preconditions": {"uid": UID}}),
        ("PATCH", f"{PODS}/{NAME}", None, {"metadata": {"uid": UID, "annotations": annotations}}),
    ]


@pytest.mark.case(
    "Karpenter does not drain an interrupted spot node with a protected pod: a launch option can do without",
    topic="Kubernetes",
    source="aws/karpenter-provider-aws#8276",
)
async def test_a_launch_option_may_leave_its_pods_to_karpenter() -> None:
    running = make_pod({"phase": "Running"})
    machine = ProviderMachineId(f"{NAME}.{running['metadata']['uid']}")
    uid, mark = running["metadata"]["uid"], "gpu-runner-autoscaler/assigned"

    def patch(*names: str) -> dict[str, Any]:
        return {"metadata": {"uid": uid, "annotations": dict.fromkeys(names, "true")}}

    spot = with_changes(OPTION, do_not_disrupt=False)
    other = with_changes(OPTION, shape="another")
    both, marked, kept = patch(mark, KEPT), patch(mark), patch(KEPT)
    cases = [
        ([spot], [marked]),
        ([other, spot], [marked]),
        ([OPTION, with_changes(other, do_not_disrupt=False)], [marked, kept]),
        ([with_changes(other, do_not_disrupt=False)], [marked, kept]),
        ([OPTION, other], [both]),
    ]
    for options, expected in cases:
        api = RecordingApi([running] * 2)
        settings = make_settings(options={(SKU, at): one for at, one in enumerate(options)})
        provider = KubernetesProvider(settings, RememberingTelemetry(), ManualClock(), api)
        await provider.protect(machine)
        assert [(method, body) for method, _, _, body in api.asked] == [
            ("PATCH", body) for body in expected
        ]
        assert {path for _, path, _, _ in api.asked} == {f"{PODS}/{NAME}"}


@pytest.mark.parametrize(
    "pod",
    [
        make_pod({"phase": "Running"}, deleted=True),
        make_pod({"phase": "Failed", "reason": "Evicted", "message": "disk"}),
    ],
)
async def test_a_pod_without_protection_must_be_there_too(
    pod: dict[str, Any],
) -> None:
    asked = ProviderMachineId(f"{NAME}.{pod['metadata']['uid']}")
    with pytest.raises(ProviderError) as caught:
        await protect_pod(
            RecordingApi([pod]), "runners", asked, [with_changes(OPTION, do_not_disrupt=False)]
        )
    assert caught.value.code == "Leaving"


async def test_a_machine_that_is_no_pod_cannot_be_protected() -> None:
    with pytest.raises(ProviderError, match="i-0abc is not a pod") as caught:
        await protect_pod(RecordingApi([]), "runners", ProviderMachineId("i-0abc"))
    assert (caught.value.failure, caught.value.code) == (FailureClass.UNKNOWN, "NotFound")


@pytest.mark.parametrize(
    ("pod", "why"),
    [
        (make_pod({"phase": "Running"}, deleted=True), "Deleted: the pod was deleted"),
        (make_pod({"phase": "Failed", "reason": "Evicted", "message": "disk"}), "Evicted: disk"),
    ],
)
async def test_a_pod_that_ends_cannot_be_protected(pod: dict[str, Any], why: str) -> None:
    with pytest.raises(ProviderError, match=f"pod {NAME}: .*{why}") as caught:
        await protect_pod(RecordingApi([pod]), "runners", POD)
    assert (caught.value.failure, caught.value.code) == (FailureClass.UNKNOWN, "Leaving")


@pytest.mark.parametrize("ready", [False, True])
async def test_a_denial_of_an_api_server_that_is_not_ready_is_no_error_of_the_operator(
    ready: bool,
) -> None:
    denied = ProviderError(FailureClass.CONFIGURATION, FORBIDDEN, "pods is forbidden", None)
    api = RecordingApi([denied])
    if not ready:
        api.readiness = denied
    with pytest.raises(ProviderError) as caught:
        await launch_pods(api, launch_text(make_settings(), make_order()))
    assert (caught.value.code, caught.value.failure) == (
        (FORBIDDEN, FailureClass.CONFIGURATION) if ready else (NOT_READY, FailureClass.THROTTLED)
    )
    explained = "the API server is not ready, and denies what it may allow: pods is forbidden"
    assert caught.value.message == ("pods is forbidden" if ready else explained)


async def test_a_token_is_reviewed_for_the_audience_of_this_fleet() -> None:
    settings = make_settings()
    user = {
        "username": "system:serviceaccount:runners:default",
        "extra": {POD_NAME: [NAME], POD_UID: [UID]},
    }
    status = {"authenticated": True, "audiences": [settings.audience], "user": user}
    api = RecordingApi([{"status": status}])
    assert (await verify_token(api, settings, b"a.b.c")).provider_id == POD
    [(method, path, _, review)] = api.asked
    assert (method, path) == ("POST", "/apis/authentication.k8s.io/v1/tokenreviews")
    assert review == {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": "a.b.c", "audiences": [settings.audience]},
    }


async def test_the_watch_follows_the_fleets_pods_from_the_version_of_the_list() -> None:
    api = RecordingApi([EMPTY, EMPTY])
    watch = PodWatch(api, make_settings())
    for lists in (1, 2):  # after a watch without an event, a list comes first
        with pytest.raises(OutcomeUnknownError):
            await anext(watch.changes())
        assert watch.lists == lists
    assert api.asked[1][:3] == (
        "GET",
        PODS,
        {
            "labelSelector": f"{ownership.FLEET}=ci",
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": "5",
            "timeoutSeconds": str(WATCH_SECONDS),
        },
    )


async def test_the_quota_is_read_from_all_nodes_and_all_pods() -> None:
    api = RecordingApi([EMPTY, EMPTY])
    await make_provider(api, replace(make_settings(), provisioner=False)).quotas()
    everything = {"limit": "100"}
    assert api.asked == [
        ("GET", "/api/v1/nodes", everything, None),
        ("GET", "/api/v1/pods", everything, None),
    ]


async def test_a_dry_run_creates_nothing() -> None:
    api, pod = RecordingApi([{}]), make_pod()
    await dry_run(api, pod)
    assert api.asked == [("POST", PODS, {"fieldValidation": "Strict", "dryRun": "All"}, pod)]


async def test_a_pod_of_another_launch_request_is_not_adopted() -> None:
    """Only another program, or another fleet of the same name, can have created it."""
    exists = ProviderError(FailureClass.UNKNOWN, "AlreadyExists", "pods exists")
    other = make_pod()
    other["metadata"]["labels"][ownership.LAUNCH_REQUEST] = "other"
    api = RecordingApi([exists, other])
    with pytest.raises(ProviderError) as refused:
        await launch_pods(api, launch_text(make_settings(), make_order()))
    assert (refused.value.failure, refused.value.code) == (
        FailureClass.CONFIGURATION,
        "AlreadyExists",
    )
    assert str(refused.value).endswith(
        f"pod {NAME} exists and is not of launch request 0123456789abcdef"
    )
    assert refused.value.retry_after is None, "the API server named no time"


@pytest.mark.parametrize(
    ("order", "code", "words"),
    [
        (make_order(sku=SkuName("gone")), "Sku", "launch option 0 of gone is not on cluster"),
        (
            replace(make_order(), launch_request=LaunchRequestId("A B")),
            "Name",
            "ci-A B-0 is no name for a pod",
        ),
    ],
)
def test_an_order_that_cannot_be_a_request_is_refused_with_the_reason(
    order: LaunchOrder, code: str, words: str
) -> None:
    with pytest.raises(ProviderError) as refused:
        launch_text(make_settings(), order)
    assert (refused.value.failure, refused.value.code) == (FailureClass.CONFIGURATION, code)
    assert refused.value.message == words


def hook_pod(name: str, of: str) -> dict[str, Any]:
    """A pod that the container hooks created for the job of a runner's pod."""
    return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": {"runner-pod": of}}}


HOOKED = make_settings(
    options={(SKU, 0): with_changes(OPTION, container_mode=hooks("container-hooks"))}
)


@pytest.mark.parametrize("answer", [{}, GONE, ProviderError(FailureClass.UNKNOWN, "Conflict", "")])
async def test_a_jobs_pod_is_deleted_once_its_runners_pod_is_gone(answer: Any) -> None:
    """It may be deleted, or replaced, by others at the same time."""
    left = [hook_pod("left", "ci-0123456789abcdef-7"), hook_pod("job", NAME)]
    strangers = [hook_pod("stranger", "other-0123456789abcdef-7")]
    api = RecordingApi(
        [
            {"items": [*left, *strangers]},
            {**EMPTY, "items": [make_pod({"phase": "Running"})]},
            GONE,
            answer,
        ]
    )
    await delete_left_pods(api, HOOKED)
    assert api.answers == []
    assert [(method, path, body) for method, path, _, body in api.asked] == [
        ("GET", PODS, None),
        ("GET", PODS, None),
        ("GET", f"{PODS}/ci-0123456789abcdef-7", None),
        ("DELETE", f"{PODS}/left", {"preconditions": {"uid": "uid-left"}}),
    ]


async def test_a_jobs_pod_stays_while_a_get_shows_its_runners_pod() -> None:
    """The labels of that pod may be missing, so that no list of the fleet shows it."""
    items = [hook_pod("job", "ci-0123456789abcdef-7")]
    api = RecordingApi([{"items": items}, EMPTY, make_pod()])
    await delete_left_pods(api, HOOKED)
    assert [method for method, *_ in api.asked] == ["GET", "GET", "GET"]


def ended_pod(uid: str, installation: str, phase: str = "Succeeded") -> dict[str, Any]:
    pod = make_pod({"phase": phase})
    pod["metadata"] |= {"uid": uid, "name": f"{NAME}{uid}"}
    pod["metadata"]["labels"] = {
        **pod["metadata"]["labels"],
        ownership.INSTALLATION: installation,
    }
    return pod


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_only_ended_pods_of_own_installations_are_deleted(phase: str) -> None:
    """Rule 6: machines of another ID are shown and never touched until an operator adopts them."""
    pods = [
        ended_pod(uid, installation, phase)
        for uid, installation in (("a", "f00dface"), ("b", "0badcafe"), ("c", ""), ("d", "f00d"))
    ]
    running = ended_pod("e", "f00dface", "Running")
    api = RecordingApi([{**EMPTY, "items": [*pods, running]}, {}, {**EMPTY, "items": pods}, {}, {}])
    provider = make_provider(api)
    shown = [one async for page in provider.machines() for one in page]
    assert [one.terminated for one in shown] == [True] * 4 + [False]
    assert await provider.delete_unused([]) == (f"{NAME}a.a",)
    assert [path for method, path, *_ in api.asked if method == "DELETE"] == [f"{PODS}/{NAME}a"]
    # After an adoption, the pods of both IDs are the fleet's own.
    provider.adopt(InstallationId("0badcafe"))
    assert [one async for page in provider.machines() for one in page]
    assert await provider.delete_unused([]) == (f"{NAME}a.a", f"{NAME}b.b")

"""What a broken or strange API server does to requests and to the watch.

Against an HTTP server with scripted answers, because a real API server cannot be made to give them.
tests/cluster has the tests against a real one.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from autoscaler.controller.machines.console import PATIENCE
from autoscaler.controller.ports.provider import (
    MOST_CONSOLE,
    OutcomeUnknownError,
    ProviderError,
)
from autoscaler.model.identifiers import ProviderMachineId
from autoscaler.model.machines.failures import FailureClass
from autoscaler.providers.kubernetes.api.client import ACCEPT, METADATA, KubernetesApi
from autoscaler.providers.kubernetes.api.credentials import new_client
from autoscaler.providers.kubernetes.launching import launch_pods, launch_text
from autoscaler.providers.kubernetes.listing.pods import list_pods
from autoscaler.providers.kubernetes.logs import LOGS_WITHIN, pod_logs
from autoscaler.providers.kubernetes.notices.watch import PodWatch
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from autoscaler.providers.kubernetes.settings import KubernetesSettings
from tests.providers.doubles import ManualClock, RememberingTelemetry
from tests.providers.kubernetes_pods import make_order, make_pod, make_settings

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]
POD = make_pod({"phase": "Running"})


def body(status: int, content: Any, **headers: str) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        text = content if isinstance(content, str) else json.dumps(content)
        return web.Response(status=status, text=text, headers=headers)

    return answer


def pod_list(*pods: dict[str, Any], version: str = "5", following: str = "") -> Answer:
    metadata = {"resourceVersion": version, "continue": following}
    return body(200, {"kind": "PodList", "metadata": metadata, "items": list(pods)})


def events(*found: Any, broken: bool = False) -> Answer:
    """A watch that sends these events, and then ends, or breaks its connection."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for one in found:
            line = one if isinstance(one, bytes) else json.dumps(one).encode() + b"\n"
            await response.write(line)
        if broken:
            assert request.transport is not None
            request.transport.abort()
        return response

    return answer


def event(kind: str, version: str, pod: dict[str, Any] = POD) -> dict[str, Any]:
    metadata = {**pod["metadata"], "resourceVersion": version}
    return {"type": kind, "object": {**pod, "metadata": metadata}}


def bookmark(version: str) -> dict[str, Any]:
    return {"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": version}}}


EXPIRED = {
    "kind": "Status",
    "code": 410,
    "reason": "Expired",
    "message": "too old resource version",
}


async def drop(request: web.Request) -> web.StreamResponse:
    """Break the connection in place of an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


class Server:
    """Answers in the scripted order; remembers the requests."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.requests: list[web.Request] = []
        self.bodies: list[bytes] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        self.bodies.append(await request.read())
        return await self.answers.pop(0)(request)

    @property
    def asked(self) -> list[str]:
        """Method, last part of the path, and version of each request."""
        return [
            " ".join(
                [one.method, one.path.rpartition("/")[2], one.query.get("resourceVersion", "")]
            ).strip()
            for one in self.requests
        ]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest_asyncio.fixture
async def settings(server: Server, tmp_path: Path) -> AsyncIterator[KubernetesSettings]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    running = TestServer(app, host="127.0.0.1")
    await running.start_server()
    config = tmp_path / "kubeconfig"
    _write(config, str(running.make_url("")), "secret")
    yield replace(make_settings(), context="test", kubeconfig=config)
    await running.close()


def _write(path: Path, url: str, token: str) -> None:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url.rstrip("/")}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "test",
    }
    path.write_text(json.dumps(content))


@pytest_asyncio.fixture
async def api(settings: KubernetesSettings) -> AsyncIterator[KubernetesApi]:
    found = KubernetesApi(settings, RememberingTelemetry(), ManualClock())
    yield found
    await found.close()


async def test_requests_carry_the_token_and_the_exact_json(
    api: KubernetesApi, server: Server, settings: KubernetesSettings
) -> None:
    server.answers = [body(201, POD)]
    answer = await launch_pods(api, launch_text(settings, make_order()))
    assert len(answer.launched) == 1
    [request] = server.requests
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.headers["Content-Type"] == "application/json"
    assert request.query["fieldValidation"] == "Strict"
    sent = json.loads(server.bodies[0])
    assert sent["metadata"]["name"] == "ci-0123456789abcdef-0"
    assert sent["spec"]["containers"][0]["resources"]["limits"]["amd.com/gpu"] == "2"


async def test_a_created_pod_is_answered_with_its_metadata_only(
    api: KubernetesApi, server: Server, settings: KubernetesSettings
) -> None:
    created = {"kind": "PartialObjectMetadata", "metadata": POD["metadata"]}
    server.answers = [body(201, created), pod_list()]
    [found] = (await launch_pods(api, launch_text(settings, make_order()))).launched
    assert found.provider_id.endswith(POD["metadata"]["uid"])
    assert found.image == POD["spec"]["containers"][0]["image"]
    await list_pods(api, settings)
    wanted = [request.headers["Accept"] for request in server.requests]
    assert wanted == [METADATA, ACCEPT]


@pytest.mark.parametrize(
    "answer",
    [body(500, "oops"), body(503, EXPIRED), body(200, "<html>"), drop],
    ids=["an error", "a status", "a page", "no answer"],
)
async def test_a_pod_that_may_have_been_created_leaves_the_outcome_open_and_is_sent_once(
    api: KubernetesApi, server: Server, settings: KubernetesSettings, answer: Answer
) -> None:
    server.answers = [answer, body(201, POD)]
    with pytest.raises(OutcomeUnknownError):
        await launch_pods(api, launch_text(settings, make_order()))
    assert len(server.requests) == 1


async def test_a_time_out_leaves_the_outcome_open(
    server: Server, settings: KubernetesSettings
) -> None:
    async def never(_: web.Request) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    server.answers = [never]
    # Reading the kubeconfig has the same bound, and takes longer than 0.05 s on a busy host.
    api = KubernetesApi(replace(settings, timeout=2.0), RememberingTelemetry(), ManualClock())
    with pytest.raises(OutcomeUnknownError):
        await launch_pods(api, launch_text(settings, make_order()))
    await api.close()


async def test_a_repeat_of_a_partly_unknown_launch_adopts_the_created_pods(
    api: KubernetesApi, server: Server, settings: KubernetesSettings
) -> None:
    text = launch_text(settings, make_order(1))
    server.answers = [drop, body(409, {"reason": "AlreadyExists"}), body(200, POD)]
    with pytest.raises(OutcomeUnknownError):
        await launch_pods(api, text)
    [found] = (await launch_pods(api, text)).launched
    assert found.provider_id == f"ci-0123456789abcdef-0.{POD['metadata']['uid']}"
    assert server.asked == ["POST pods", "POST pods", "GET ci-0123456789abcdef-0"]
    assert not found.created


async def test_a_repeat_says_which_pods_it_created_itself(
    api: KubernetesApi, server: Server, settings: KubernetesSettings
) -> None:
    server.answers = [body(201, POD)]
    [found] = (await launch_pods(api, launch_text(settings, make_order(1)))).launched
    assert found.created


async def test_a_pod_that_disappears_while_it_is_adopted_leaves_the_outcome_open(
    api: KubernetesApi, server: Server, settings: KubernetesSettings
) -> None:
    server.answers = [body(409, {"reason": "AlreadyExists"}), body(404, {"reason": "NotFound"})]
    with pytest.raises(OutcomeUnknownError):
        await launch_pods(api, launch_text(settings, make_order()))


async def test_throttling_has_the_time_of_the_next_try(
    api: KubernetesApi, server: Server, settings: KubernetesSettings
) -> None:
    server.answers = [
        body(429, "Too many requests, please try again later.", **{"Retry-After": "7"})
    ]
    with pytest.raises(ProviderError) as error:
        await launch_pods(api, launch_text(settings, make_order()))
    assert (error.value.failure, error.value.retry_after) == (FailureClass.THROTTLED, 7.0)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 503])
async def test_a_launch_is_held_back_for_the_longest_time_that_the_api_server_named(
    api: KubernetesApi, server: Server, settings: KubernetesSettings, status: int
) -> None:
    server.answers = [body(status, {}, **{"Retry-After": word}) for word in ("3", "17", "later")]
    with pytest.raises((ProviderError, OutcomeUnknownError)) as error:
        await launch_pods(api, launch_text(settings, make_order(3)))
    assert isinstance(error.value, ProviderError | OutcomeUnknownError)
    assert error.value.retry_after == 17.0


async def test_a_launch_that_is_throttled_in_part_says_when_to_come_back(
    api: KubernetesApi, server: Server, settings: KubernetesSettings
) -> None:
    server.answers = [body(201, POD), body(429, {}, **{"Retry-After": "9"}), pod_list()]
    answer = await launch_pods(api, launch_text(settings, make_order(2)))
    assert (len(answer.launched), answer.retry_after) == (1, 9.0)


async def test_a_launch_is_unknown_if_the_list_after_a_refusal_fails(
    api: KubernetesApi, server: Server, settings: KubernetesSettings
) -> None:
    server.answers = [body(201, POD), body(429, {}), body(429, {}, **{"Retry-After": "9"})]
    with pytest.raises(OutcomeUnknownError) as error:
        await launch_pods(api, launch_text(settings, make_order(2)))
    assert error.value.retry_after == 9.0
    assert server.asked == ["POST pods", "POST pods", "GET pods"]


DENIED = (
    'pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "n"'
)
NO_ROLE = f'{DENIED}: RBAC: clusterrole.rbac.authorization.k8s.io "system:basic-user" not found'


@pytest.mark.case(
    "an API server starts: it denies all requests until it has read its roles",
    topic="Kubernetes",
    source="kubernetes/kubernetes#121635",
)
@pytest.mark.parametrize("message", [DENIED, NO_ROLE])
@pytest.mark.parametrize(
    ("readiness", "failure", "code"),
    [
        (body(403, {"reason": "Forbidden"}), FailureClass.THROTTLED, "NotReady"),
        (body(500, "[-]informer-sync failed: reason withheld"), FailureClass.THROTTLED, "NotReady"),
        (body(200, "ok"), FailureClass.CONFIGURATION, "Forbidden"),
        (body(404, "no such page"), FailureClass.CONFIGURATION, "Forbidden"),
    ],
    ids=["roles not read", "not ready", "ready", "a proxy"],
)
async def test_a_denial_counts_only_if_the_api_server_is_ready(
    api: KubernetesApi,
    server: Server,
    settings: KubernetesSettings,
    message: str,
    readiness: Answer,
    failure: FailureClass,
    code: str,
) -> None:
    denial = body(403, {"reason": "Forbidden", "message": message})
    server.answers = [denial, denial, readiness]
    with pytest.raises(ProviderError) as error:
        await launch_pods(api, launch_text(settings, make_order(2)))
    assert (error.value.failure, error.value.code) == (failure, code)
    assert message in error.value.message
    assert server.asked == ["POST pods", "POST pods", "GET readyz"]


async def test_after_a_401_the_credentials_are_read_once_more(
    api: KubernetesApi, server: Server, settings: KubernetesSettings
) -> None:
    server.answers = [pod_list(), body(401, {"reason": "Unauthorized"}), pod_list()]
    await list_pods(api, settings)
    assert settings.kubeconfig is not None
    _write(settings.kubeconfig, str(server.requests[0].url.origin()), "renewed")
    await list_pods(api, settings)
    sent = [one.headers["Authorization"] for one in server.requests]
    assert sent == ["Bearer secret", "Bearer secret", "Bearer renewed"]
    server.answers = [body(401, {})] * 2
    with pytest.raises(ProviderError) as error:
        await list_pods(api, settings)
    assert error.value.code == "Unauthorized"


@pytest.mark.parametrize("late", [0, 1, 9], ids="{} late".format)
async def test_many_401s_at_once_run_the_credential_plugin_once(
    server: Server, settings: KubernetesSettings, tmp_path: Path, late: int
) -> None:
    """`late` answers come after the other requests have read the credentials again."""
    runs, plugin, count = tmp_path / "runs", tmp_path / "plugin", 10
    version = "client.authentication.k8s.io/v1"
    credential = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": "t"}}
    plugin.write_text(f"#!/bin/sh\necho run >> '{runs}'\necho '{json.dumps(credential)}'\n")
    plugin.chmod(0o700)
    assert settings.kubeconfig is not None
    config = json.loads(settings.kubeconfig.read_text())
    config["users"][0]["user"] = {
        "exec": {"apiVersion": version, "command": str(plugin), "interactiveMode": "Never"}
    }
    settings.kubeconfig.write_text(json.dumps(config))
    everyone, renewed = asyncio.Barrier(count), asyncio.Event()

    async def refuse(request: web.Request) -> web.StreamResponse:
        await everyone.wait()
        return await body(401, {})(request)

    async def refuse_late(request: web.Request) -> web.StreamResponse:
        await everyone.wait()
        await renewed.wait()
        return await body(401, {})(request)

    async def accept(request: web.Request) -> web.StreamResponse:
        renewed.set()
        return await pod_list()(request)

    server.answers = [pod_list(), *[refuse_late] * late, *[refuse] * (count - late)]
    server.answers += [accept] * count
    api = KubernetesApi(settings, RememberingTelemetry(), ManualClock())
    await list_pods(api, settings)
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(list_pods(api, settings) for _ in range(count)))
    await api.close()
    assert runs.read_text().splitlines() == ["run"] * 2
    assert server.answers == []


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"context": "missing"}, "Kubeconfig"),
        ({"context": None, "kubeconfig": None}, "NotInCluster"),
    ],
)
async def test_an_operator_must_correct_missing_credentials(
    settings: KubernetesSettings, changes: dict[str, Any], code: str
) -> None:
    provider = KubernetesProvider(
        replace(settings, **changes), RememberingTelemetry(), ManualClock()
    )
    with pytest.raises(ProviderError) as error:
        await provider.open()
    assert (error.value.failure, error.value.code) == (FailureClass.CONFIGURATION, code)
    assert error.value.hint
    await provider.close()


@pytest.mark.case(
    "in-cluster credentials outside a cluster, or in a pod without its token",
    topic="Operators' files",
    source="Kubernetes: service accounts",
)
@pytest.mark.parametrize("empty", [False, True])
async def test_outside_a_cluster_the_error_names_the_key_and_all_that_is_missing(
    settings: KubernetesSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: bool
) -> None:
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
        if empty:
            monkeypatch.setenv(name, "")
            (tmp_path / "token").touch()
    (tmp_path / "ca.crt").write_text("a certificate")
    inside = replace(settings, context=None, kubeconfig=None, service_account_folder=tmp_path)
    provider = KubernetesProvider(inside, RememberingTelemetry(), ManualClock())
    with pytest.raises(ProviderError) as error:
        await provider.open()
    assert error.value.message == (
        f"providers.{settings.name}.kubernetes has neither context nor kubeconfig, so the controller uses its "
        "own pod's service account, and this host lacks the variable KUBERNETES_SERVICE_HOST, "
        f"the variable KUBERNETES_SERVICE_PORT, the file {tmp_path / 'token'}"
    )
    hint = error.value.hint or ""
    assert "add context or kubeconfig" in hint
    assert "automountServiceAccountToken: true" in hint
    await provider.close()


async def test_all_pages_are_listed_and_an_expired_list_begins_anew(
    api: KubernetesApi, server: Server, settings: KubernetesSettings
) -> None:
    server.answers = [
        pod_list(POD, following="next"),
        body(410, EXPIRED),
        pod_list(POD, following="again", version="8"),
        pod_list(POD, version="8"),
    ]
    found = await list_pods(api, settings)
    assert (len(found.pods), found.version) == (2, "8")
    assert [one.query.get("continue") for one in server.requests] == [None, "next", None, "again"]
    assert all(
        one.query["labelSelector"] == "gpu-runner-autoscaler/fleet=ci" for one in server.requests
    )


async def test_a_list_that_always_expires_is_an_error_and_no_short_list(
    api: KubernetesApi, server: Server, settings: KubernetesSettings
) -> None:
    server.answers = [pod_list(POD, following="next"), body(410, EXPIRED)] * 3
    with pytest.raises(ProviderError):
        await list_pods(api, settings)


async def test_the_watch_continues_from_the_last_version_or_bookmark(
    api: KubernetesApi, server: Server, settings: KubernetesSettings
) -> None:
    server.answers = [
        pod_list(version="5"),
        events(event("ADDED", "6")),
        events(bookmark("9"), broken=True),
        events(event("DELETED", "12")),
    ]
    watch = PodWatch(api, settings)
    changes = watch.changes()
    assert (await anext(changes)).pod is not None
    assert (await anext(changes)).pod is None
    assert server.asked == ["GET pods", "GET pods 5", "GET pods 6", "GET pods 9"]
    assert all(one.query["allowWatchBookmarks"] == "true" for one in server.requests[1:])
    await changes.aclose()


@pytest.mark.parametrize(
    "expired",
    [body(410, EXPIRED), events({"type": "ERROR", "object": EXPIRED})],
    ids=["answer", "event"],
)
async def test_after_410_the_pods_are_listed_again_and_the_missing_ones_named(
    api: KubernetesApi, server: Server, settings: KubernetesSettings, expired: Answer
) -> None:
    server.answers = [pod_list(POD, version="5"), expired, pod_list(version="20"), drop]
    watch = PodWatch(api, settings)
    changes = watch.changes()
    first = await anext(changes)
    gone = await anext(changes)
    assert (first.pod is None, gone.pod is None) == (False, True)
    assert first.machine == gone.machine
    with pytest.raises(OutcomeUnknownError):
        await anext(changes)
    assert watch.lists == 2
    assert server.asked[-1] == "GET pods 20"


@pytest.mark.parametrize(
    "answer",
    [
        events(),
        events(broken=True),
        events(b"not json\n"),
        events(b"{}\n"),
        events(b"[]\n"),
        events({"type": "ERROR", "object": {"code": 500}}),
        body(500, "oops"),
    ],
    ids=["empty", "broken", "text", "object", "list", "error", "500"],
)
async def test_a_watch_without_events_is_an_error_so_that_its_reader_pauses(
    api: KubernetesApi, server: Server, settings: KubernetesSettings, answer: Answer
) -> None:
    server.answers = [pod_list(version="5"), answer]
    with pytest.raises(OutcomeUnknownError):
        await anext(PodWatch(api, settings).changes())


@pytest.mark.parametrize(
    "broken",
    [events(b"not json\n"), events({"type": "ERROR", "object": {"code": 500}})],
    ids=["text", "error"],
)
async def test_after_an_event_that_cannot_be_read_the_pods_are_listed_again(
    api: KubernetesApi, server: Server, settings: KubernetesSettings, broken: Answer
) -> None:
    server.answers = [pod_list(version="5"), broken, pod_list(POD, version="20")]
    watch = PodWatch(api, settings)
    with pytest.raises(OutcomeUnknownError):
        await anext(watch.changes())
    assert (await anext(watch.changes())).pod is not None
    assert server.asked == ["GET pods", "GET pods 5", "GET pods"]


async def test_the_watch_gives_each_notice_once(
    server: Server, settings: KubernetesSettings
) -> None:
    ended = {**POD, "status": {"phase": "Failed", "reason": "Evicted", "message": "disk"}}
    server.answers = [
        pod_list(POD),
        events(event("MODIFIED", "6", ended), event("MODIFIED", "7", ended), event("DELETED", "8")),
        drop,
    ]
    provider = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    said = []

    async def read() -> None:
        while True:
            for message in await provider.notices.receive(600.0):
                assert message.notice is not None
                said.append(message.notice.detail)
                await provider.notices.settle([message.receipt])

    with pytest.raises(OutcomeUnknownError):
        await read()
    # The removal is announced too: a GET after the first notice may already have found no pod.
    assert said == ["Evicted: disk", "does not exist"]
    await provider.close()


async def test_the_console_is_the_state_and_the_end_of_all_logs(
    server: Server, settings: KubernetesSettings
) -> None:
    provider = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    machine = ProviderMachineId(f"{POD['metadata']['name']}.{POD['metadata']['uid']}")
    ended = {**POD, "status": {"phase": "Failed", "reason": "Evicted", "message": "disk"}}
    waiting = body(400, {"reason": "BadRequest", "message": "waiting to start"})
    ended["spec"] = {**POD["spec"], "initContainers": [{"name": "cache"}]}
    server.answers = [body(200, ended), waiting, body(200, "health check failed\n")]
    shown = await provider.console(machine)
    assert shown == "Evicted: disk\nrunner:\nhealth check failed\n"
    assert [one.query.get("container") for one in server.requests] == [None, "cache", "runner"]
    assert {(one.query["tailLines"], one.query["limitBytes"]) for one in server.requests[1:]} == {
        ("128", "2097152")
    }
    server.answers = [body(200, POD), body(200, "x" * 3 * MOST_CONSOLE)]
    assert len(await provider.console(machine)) == MOST_CONSOLE
    other = {**POD, "metadata": {**POD["metadata"], "uid": "another"}}
    server.answers = [body(200, other)]
    with pytest.raises(ProviderError, match=rf"NotFound: pod {machine} does not exist"):
        await provider.console(machine)
    await provider.close()


async def test_the_console_has_the_state_of_a_pod_whose_node_does_not_answer(
    server: Server, settings: KubernetesSettings
) -> None:
    api = KubernetesApi(settings, RememberingTelemetry(), ManualClock())
    machine = ProviderMachineId(f"{POD['metadata']['name']}.{POD['metadata']['uid']}")
    lost = {**POD, "status": {"phase": "Failed", "reason": "NodeLost", "message": "gone"}}
    said = 'Get "https://10.0.0.7:10250/containerLogs/": dial tcp 10.0.0.7:10250: no route to host'
    server.answers = [body(200, lost), body(500, {"reason": "InternalError", "message": said})]
    shown = await pod_logs(api, settings, machine)
    assert shown == f"NodeLost: gone\nthe logs could not be read: InternalError: {said}"
    # Or it answers too late.
    server.answers = [body(200, lost), body(200, "late")]
    shown = await pod_logs(api, settings, machine, within=0.0)
    assert shown == "NodeLost: gone\nthe logs could not be read within 0 s"
    assert LOGS_WITHIN < PATIENCE
    await api.close()


async def test_the_console_has_the_log_of_a_docker_daemon_that_does_not_start(
    server: Server, settings: KubernetesSettings
) -> None:
    provider = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    pod = make_pod({"phase": "Pending"})
    pod["spec"]["initContainers"] = [{"name": "dind-files"}, {"name": "dind"}]
    waiting = body(400, {"reason": "BadRequest", "message": "waiting to start"})
    log = body(200, "missing necessary entries in /etc/subuid\n")
    server.answers = [body(200, pod), body(200, ""), log, waiting]
    machine = ProviderMachineId(f"{pod['metadata']['name']}.{pod['metadata']['uid']}")
    shown = await provider.console(machine)
    assert "dind:\nmissing necessary entries in /etc/subuid" in shown
    asked = [one.query.get("container") for one in server.requests]
    assert asked == [None, "dind-files", "dind", "runner"]
    await provider.close()


async def test_each_request_is_counted_by_its_name_and_outcome(
    server: Server, settings: KubernetesSettings
) -> None:
    server.answers = [pod_list(), drop, body(422, {"reason": "Invalid"})]
    telemetry = RememberingTelemetry()
    api = KubernetesApi(settings, telemetry, ManualClock())
    await list_pods(api, settings)
    for error in (OutcomeUnknownError, ProviderError):
        with pytest.raises(error):
            await launch_pods(api, launch_text(settings, make_order()))
    await api.close()
    assert telemetry.calls == [
        ("ListPods", "ok"),
        ("CreatePod", "unknown"),
        ("CreatePod", "Invalid"),
    ]


async def test_a_pod_whose_deletion_is_refused_stops_no_other(
    server: Server, settings: KubernetesSettings
) -> None:
    provider = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    machines = [ProviderMachineId(f"ci-0123456789abcdef-{slot}.uid-{slot}") for slot in range(3)]

    async def throttled(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("-1"):
            return web.json_response({"reason": "TooManyRequests", "message": "later"}, status=429)
        return web.json_response({})

    server.answers = [throttled] * 3
    refused = await provider.terminate(machines)
    assert list(refused) == [machines[1]]
    assert "later" in refused[machines[1]]
    server.answers = [throttled]
    with pytest.raises(ProviderError, match="later"):
        await provider.terminate(machines[1:2])
    await provider.close()


@pytest.mark.parametrize(
    ("part", "content"),
    [("users", []), ("users", [{"name": "u", "user": None}]), ("contexts", [{"name": "one"}])],
)
async def test_an_incomplete_kubeconfig_is_an_error_in_credentials(
    tmp_path: Path, part: str, content: list[dict[str, Any]]
) -> None:
    kubeconfig = {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    file = tmp_path / "config"
    file.write_text(json.dumps(kubeconfig | {part: content}))
    with pytest.raises(ProviderError) as found:
        await new_client(make_settings(context="one", kubeconfig=file))
    assert found.value.code == "Kubeconfig"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("plugin-that-is-absent", "plugin-that-is-absent is not on this host"),
        ("false", "false failed"),
    ],
)
async def test_a_credential_plugin_without_an_answer_is_named(
    tmp_path: Path, command: str, said: str
) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": command}
    kubeconfig = {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {"exec": plugin}}],
    }
    file = tmp_path / "config"
    file.write_text(json.dumps(kubeconfig))
    with pytest.raises(ProviderError, match=f"credential plugin {said}") as found:
        await new_client(make_settings(kubeconfig=file))
    assert found.value.code == "Kubeconfig"

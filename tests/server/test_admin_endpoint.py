"""/admin: authentication, the requests that are passed on, and the answers to refused ones."""

import asyncio
import io
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
import structlog

from autoscaler.controller.operators.actions import OperatorActions
from autoscaler.controller.operators.holds import OperatorHoldActions
from autoscaler.controller.ports.operator_requests import (
    ConfigurationRequests,
    ControllerStopsError,
    HoldOutcome,
    OperatorRequestRefusedError,
    PlanAgainst,
    PlanInProgressError,
    RefusalKind,
    RefusedConfigurationError,
    Reloaded,
)
from autoscaler.controller.ports.store import StoreError
from autoscaler.model.identifiers import (
    InstallationId,
    MachineId,
    ProviderMachineId,
    ProviderName,
    SkuName,
)
from autoscaler.model.machines.unverified import UnverifiedMachine
from autoscaler.model.operators import Operator, OperatorName, Role
from autoscaler.server.listening.serving import Serving
from autoscaler.server.operators.admin import (
    MAX_FILE_BYTES,
    MAX_MACHINES,
    PLAN_TIMEOUT,
    AdminEndpoint,
)
from autoscaler.server.refusal_log import LINES
from autoscaler.server.tokens import MOST_WRONG, WRONG_FOR, BearerTokens, WrongTokens
from autoscaler.views.preview import LaunchView, Preview, TerminationView, WaitingView
from tests.ledger.builders import World
from tests.server.asked_world import AskedWorld
from tests.server.fakes import LOOPBACK, Caller, running

TOKEN, OLDER, READER = "n" * 40, "o" * 40, "r" * 40
TOKENS = BearerTokens(
    (token.encode(), Operator(OperatorName(name), role))
    for token, name, role in (
        (OLDER, "alice", Role.OPERATE),
        (TOKEN, "alice", Role.OPERATE),
        (READER, "console", Role.READ),
    )
)
REFUSED = ("fleet.yaml:9: store: cannot change while the fleet has 2 machines; fix: drain it",)
PREVIEW = Preview(
    (LaunchView("gpu", "east", "spot", 2, 3.0),),
    (TerminationView("c0", "gpu", "idle", "idle for 60 s", 1.5),),
    300,
    (WaitingView("gpu", 4, "max_machines", "max_machines of gpu (2) is reached", True),),
    1,
    ("limits.machines is 5, and the fleet has 11 machines",),
    10.0,
    11.5,
)
ONE = UnverifiedMachine(
    MachineId("x-i-1"),
    ProviderName("east"),
    ProviderMachineId("i-1"),
    "0badcafe",
    SkuName("gpu"),
    1000.0,
    "t0",
    "why",
    "what to do",
)


@dataclass
class Word(OperatorActions, OperatorHoldActions):
    """Accepts every operator request, or refuses with `refusal`."""

    shown: list[UnverifiedMachine] = field(default_factory=lambda: [ONE])
    refusal: Exception | None = None
    taken: list[tuple[str, bool]] = field(default_factory=list)
    asked_by: set[str] = field(default_factory=set)
    sent: bytes = b""

    def unverified(self) -> Sequence[UnverifiedMachine]:
        return self.shown

    def providers_not_listed(self) -> Sequence[ProviderName]:
        return [ProviderName("west")]

    async def terminate(self, machine: str, *, by: OperatorName, force: bool = False) -> MachineId:
        self._take(machine, by, force)
        return MachineId(f"x-{machine}")

    async def adopt(self, old_id: str, *, by: OperatorName, force: bool = False) -> InstallationId:
        self._take(old_id, by, force)
        return InstallationId(old_id)

    async def pause(self, target: str, *, by: OperatorName) -> HoldOutcome:
        return self._held("paused", target, by)

    async def drain(self, target: str, *, by: OperatorName) -> HoldOutcome:
        return self._held("drained", target, by)

    async def quarantine(self, target: str, *, by: OperatorName) -> HoldOutcome:
        return self._held("quarantined", target, by)

    async def resume(self, target: str, *, by: OperatorName) -> HoldOutcome:
        return self._held("resumed", target, by)

    async def retry(self, target: str, *, by: OperatorName) -> HoldOutcome:
        return self._held("retried", target, by)

    def _held(self, done: str, target: str, by: OperatorName) -> HoldOutcome:
        self._take(target, by, False)
        return HoldOutcome(target, f"{target} is {done}", "more follows")

    async def reload(self, *, by: OperatorName) -> Reloaded:
        self._take("reload", by, False)
        return Reloaded(("limits.machines",), "1 changed key in force")

    async def plan_against(self, content: bytes) -> PlanAgainst:
        if b"bad" in content:
            raise RefusedConfigurationError(["fleet.yaml:1: skus: is bad; fix: mend it"])
        if b"busy" in content:
            raise PlanInProgressError
        if b"endless" in content:
            await asyncio.Event().wait()
        self.sent = content
        return PlanAgainst(("limits.machines",), ("store",), REFUSED, PREVIEW)

    def _take(self, what: str, by: OperatorName, force: bool) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.taken.append((what, force))
        self.asked_by.add(by)


@dataclass
class Admin:
    """The endpoint on a listener, and a client with a token."""

    session: aiohttp.ClientSession
    word: Word

    async def ask(
        self, method: str, path: str, body: Any = None, **options: Any
    ) -> tuple[int, dict[str, Any]]:
        options.setdefault("headers", {"Authorization": f"Bearer {TOKEN}"})
        data = json.dumps(body).encode() if body is not None else options.pop("data", None)
        async with self.session.request(method, path, data=data, **options) as answer:
            return answer.status, await answer.json()


@asynccontextmanager
async def administered(word: Word, plan_timeout: float = PLAN_TIMEOUT) -> AsyncIterator[Admin]:
    configuration: ConfigurationRequests = word
    tried = WrongTokens(asyncio.get_running_loop().time)
    endpoint = AdminEndpoint(
        word, word, AskedWorld(World()), configuration, lambda: TOKENS, tried, plan_timeout
    )
    async with (
        Serving(LOOPBACK, endpoint, []) as serving,
        aiohttp.ClientSession(f"http://{serving.address}") as session,
    ):
        yield Admin(session, word)


@pytest_asyncio.fixture
async def admin() -> AsyncIterator[Admin]:
    async with administered(Word()) as served:
        yield served


ROUTES = [
    ("GET", "/admin/unverified"),
    ("POST", "/admin/machines/i-1/terminate"),
    ("POST", "/admin/adopt"),
    ("POST", "/admin/pause"),
    ("POST", "/admin/drain"),
    ("POST", "/admin/quarantine"),
    ("POST", "/admin/resume"),
    ("POST", "/admin/retry"),
    ("POST", "/admin/reload"),
]
PLAN = ("POST", "/admin/plan")
"""A question, although its file is sent with POST."""


async def test_unverified_machines_are_listed_for_a_valid_token(admin: Admin) -> None:
    for token in (TOKEN, OLDER, READER):
        status, reported = await admin.ask(
            "GET", "/admin/unverified", headers={"Authorization": f"bearer {token}"}
        )
        assert (status, reported["total"], reported["providers_not_listed"]) == (200, 1, ["west"])
        (one,) = reported["unverified"]
        assert (one["machine"], one["provider_id"], one["since"]) == ("x-i-1", "i-1", 1000.0)
        assert (one["why"], one["what_to_do"]) == ("why", "what to do")


async def test_an_answer_is_bounded(admin: Admin) -> None:
    admin.word.shown = [ONE] * (MAX_MACHINES + 5)
    _, reported = await admin.ask("GET", "/admin/unverified")
    assert (len(reported["unverified"]), reported["total"]) == (MAX_MACHINES, MAX_MACHINES + 5)


@pytest.mark.case(
    "strangers send admin requests, or guess tokens",
    topic="Hostile input",
    source="RFC 6750",
)
@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("Authorization", "Bearer ")],
        [("Authorization", f"Bearer {TOKEN[:-1]}")],
        [("Authorization", f"Bearer {TOKEN}x")],
        [("Authorization", f"Basic {TOKEN}")],
        [("Authorization", TOKEN)],
        [("Authorization", f"Bearer {'x' * 1_500}")],
        [("Authorization", "Bearer \u00e9")],
        [("Authorization", f"Bearer {TOKEN}"), ("Authorization", "Bearer other")],
    ],
)
@pytest.mark.parametrize(("method", "path"), [*ROUTES, PLAN])
async def test_requests_without_a_token_are_refused(
    admin: Admin, method: str, path: str, headers: list[tuple[str, str]]
) -> None:
    status, reported = await admin.ask(method, path, {"installation": "x"}, headers=headers)
    assert (status, reported) == (401, {"error": "token"})
    assert admin.word.taken == []


async def test_operator_requests_are_passed_on(admin: Admin) -> None:
    assert await admin.ask("POST", "/admin/machines/i-1/terminate") == (200, {"machine": "x-i-1"})
    forced = {"force": True}
    assert await admin.ask("POST", "/admin/machines/i-2/terminate", forced) == (
        200,
        {"machine": "x-i-2"},
    )
    body = {"installation": "01d01d01", "force": False}
    reported = {"installation": "01d01d01"}
    assert await admin.ask("POST", "/admin/adopt", body) == (200, reported)
    assert admin.word.taken == [
        ("i-1", False),
        ("i-2", True),
        ("01d01d01", False),
    ]
    assert admin.word.asked_by == {"alice"}


@pytest.mark.parametrize(
    ("name", "done"),
    [
        ("pause", "paused"),
        ("drain", "drained"),
        ("quarantine", "quarantined"),
        ("resume", "resumed"),
        ("retry", "retried"),
    ],
)
async def test_a_hold_is_passed_on_and_its_outcome_comes_back(
    admin: Admin, name: str, done: str
) -> None:
    status, reported = await admin.ask("POST", f"/admin/{name}", {"target": "sku/gpu"})
    assert (status, reported) == (
        200,
        {"target": "sku/gpu", "done": f"sku/gpu is {done}", "next": "more follows"},
    )
    assert (admin.word.taken, admin.word.asked_by) == ([("sku/gpu", False)], {"alice"})


@pytest.mark.parametrize("path", [path for method, path in ROUTES if method == "POST"])
async def test_a_token_that_may_only_read_changes_nothing(admin: Admin, path: str) -> None:
    status, reported = await admin.ask(
        "POST", path, {"installation": "x"}, headers={"Authorization": f"Bearer {READER}"}
    )
    assert (status, reported["error"]) == (403, "role")
    assert reported["reason"] == "token console has the role read, and this needs operate"
    assert admin.word.taken == []


async def test_a_refused_role_is_logged_with_the_name_and_the_route_and_no_secret(
    admin: Admin,
) -> None:
    reads = {"Authorization": f"Bearer {READER}"}
    with structlog.testing.capture_logs() as lines:
        body = {"target": "body-words"}
        await admin.ask("POST", "/admin/pause?key=query-words", body, headers=reads)
        long = f"/admin/machines/{'a%0A' * 60}/terminate"
        await admin.ask("POST", long, headers=reads)
    said, bounded = lines
    assert (said["by"], said["route"], said["peer"]) == (
        "console",
        "POST /admin/pause",
        "127.0.0.1",
    )
    assert (len(bounded["route"]), bounded["route"].isprintable()) == (200, True)
    assert all(words not in str(lines) for words in ("body-words", "query-words", READER))


async def test_a_stranger_s_request_is_logged_with_its_pattern_alone(admin: Admin) -> None:
    wrong = {"Authorization": "Bearer a-wrong-token"}
    with structlog.testing.capture_logs() as lines:
        await admin.ask("POST", "/admin/machines/strange-words/terminate", headers=wrong)
    (line,) = lines
    assert line["route"] == "POST /admin/machines/{machine}/terminate"
    assert "by" not in line
    assert "strange-words" not in str(line)


@pytest.mark.parametrize(
    ("kind", "status"),
    [(RefusalKind.UNKNOWN, 404), (RefusalKind.CONTRADICTED, 409), (RefusalKind.UNREACHABLE, 503)],
)
async def test_a_refusal_comes_back_with_its_reason(
    admin: Admin, kind: RefusalKind, status: int
) -> None:
    admin.word.refusal = OperatorRequestRefusedError(kind, "because")
    reported = {"error": kind.value, "reason": "because"}
    with structlog.testing.capture_logs() as lines:
        answer = await admin.ask("POST", "/admin/machines/i-1/terminate")
    assert answer == (status, reported)
    assert lines == [
        {
            "event": "admin_refused",
            "log_level": "warning",
            "reason": "because",
            "by": "alice",
            "route": "POST /admin/machines/i-1/terminate",
            "peer": "127.0.0.1",
        }
    ]
    assert await admin.ask("POST", "/admin/adopt", {"installation": "a"}) == (status, reported)
    assert await admin.ask("POST", "/admin/retry", {"target": "gpu"}) == (status, reported)


async def test_an_operator_request_that_could_not_be_stored_is_not_acknowledged(
    admin: Admin,
) -> None:
    admin.word.refusal = StoreError("disk full")
    assert await admin.ask("POST", "/admin/machines/i-1/terminate") == (503, {"error": "store"})


@pytest.mark.case(
    "strangers send admin requests, or guess tokens",
    topic="Hostile input",
    source="RFC 6750",
)
@pytest.mark.parametrize(
    ("path", "data", "words"),
    [
        ("/admin/reload", b'{"force": true}', "keys: none"),
        ("/admin/drain", b'{"target": 1}', "`target` must be"),
        ("/admin/resume", b'{"target": "a b"}', "`target` must be"),
        ("/admin/quarantine", b'{"target": "a/b/c"}', "`target` must be"),
        ("/admin/pause", b'{"target": "gpu", "force": true}', "keys: target"),
        ("/admin/retry", b'{"target": "gpu", "force": true}', "keys: target"),
        ("/admin/machines/i-1/terminate", b"no json", "not JSON"),
        ("/admin/machines/i-1/terminate", b"[]", "a JSON object; keys: force"),
        ("/admin/machines/i-1/terminate", b'{"force": 1}', "`force` must be true or false"),
        ("/admin/machines/i-1/terminate", b'{"other": true}', "keys: force"),
        ("/admin/machines/i-1/terminate", b"\xff", "not JSON"),
        ("/admin/machines/i-1/terminate", b"[" * 4000, "not JSON"),
        ("/admin/machines/-rm/terminate", b"", "must be a machine's ID"),
        ("/admin/machines/" + "i" * 129 + "/terminate", b"", "must be a machine's ID"),
        ("/admin/machines/a%0ab/terminate", b"", "must be a machine's ID"),
        ("/admin/adopt", b"", "the ID of an installation"),
        ("/admin/adopt", b'{"installation": 1}', "the ID of an installation"),
        ("/admin/adopt", b'{"installation": "a b"}', "the ID of an installation"),
        ("/admin/adopt", b'{"installation": ""}', "the ID of an installation"),
        ("/admin/adopt", b'{"installation": "a", "force": null}', "`force` must be true or false"),
    ],
)
async def test_malformed_operator_requests_are_refused_with_what_is_allowed(
    admin: Admin, path: str, data: bytes, words: str
) -> None:
    status, refused = await admin.ask("POST", path, data=data)
    assert (status, refused["error"]) == (400, "malformed")
    assert words in refused["reason"]
    assert admin.word.taken == []


async def test_a_missing_target_is_refused_with_the_names_that_can_be_one(admin: Admin) -> None:
    reason = "`target` must be all or the name of a SKU, provider or machine, perhaps after its kind and a /"
    answer = await admin.ask("POST", "/admin/pause", data=b"")
    assert answer == (400, {"error": "malformed", "reason": reason})


async def test_a_reload_is_passed_on(admin: Admin) -> None:
    status, reported = await admin.ask("POST", "/admin/reload")
    assert (status, reported) == (
        200,
        {"changed": ["limits.machines"], "done": "1 changed key in force"},
    )
    assert admin.word.asked_by == {"alice"}


async def test_a_changed_file_is_planned_for_a_token_that_may_only_read(admin: Admin) -> None:
    headers = {"Authorization": f"Bearer {READER}"}
    status, found = await admin.ask("POST", "/admin/plan", data=b"fleet: x", headers=headers)
    assert (status, admin.word.sent, found["needs_restart"]) == (200, b"fleet: x", ["store"])
    assert found["preview"]["launches"][0]["count"] == 2
    assert found["preview"]["terminated"] == 300


async def test_a_file_that_is_refused_comes_back_with_its_problems(admin: Admin) -> None:
    status, found = await admin.ask("POST", "/admin/plan", data=b"bad")
    assert (status, found) == (
        422,
        {"error": "configuration", "problems": ["fleet.yaml:1: skus: is bad; fix: mend it"]},
    )


async def test_a_second_plan_at_the_same_time_is_refused(admin: Admin) -> None:
    status, found = await admin.ask("POST", "/admin/plan", data=b"busy")
    reason = "the controller makes another plan now: try again in a few seconds"
    assert (status, found) == (503, {"error": "busy", "reason": reason})
    assert "try again" in found["reason"]


async def test_a_plan_that_takes_too_long_is_answered() -> None:
    async with administered(Word(), plan_timeout=0.01) as admin:
        status, found = await admin.ask("POST", "/admin/plan", data=b"endless")
    assert (status, found) == (503, {"error": "busy", "reason": "the plan takes too long"})


async def test_a_controller_that_stops_takes_no_reload(admin: Admin) -> None:
    admin.word.refusal = ControllerStopsError()
    status, found = await admin.ask("POST", "/admin/reload", {})
    reason = "the controller stops, or starts again: reload again once it runs"
    assert (status, found) == (503, {"error": "busy", "reason": reason})


async def test_a_file_is_bounded(admin: Admin) -> None:
    status, found = await admin.ask(
        "POST", "/admin/plan", data=io.BytesIO(b" " * (MAX_FILE_BYTES + 1))
    )
    assert (status, found) == (413, {"error": "too_large"})


async def test_a_body_is_bounded(admin: Admin) -> None:
    status, reported = await admin.ask("POST", "/admin/machines/i-1/terminate", data=b" " * 5000)
    assert (status, reported) == (413, {"error": "too_large"})


async def test_refusals_are_logged_a_bounded_number_of_times_and_without_their_contents() -> None:
    async with administered(Word()) as admin:
        with structlog.testing.capture_logs() as lines:
            wrong = {"Authorization": "Bearer a-wrong-token"}
            for _ in range(30):
                await admin.ask("GET", "/admin/unverified", headers=wrong)
    assert [(line["event"], line["reason"]) for line in lines] == [("admin_refused", "token")] * 20
    assert {line["peer"] for line in lines} == {"127.0.0.1"}
    assert "a-wrong-token" not in str(lines)


async def test_wrong_tokens_are_bounded_and_never_keep_a_valid_one_out(admin: Admin) -> None:
    """Behind a proxy, a stranger and the operators have one address."""

    async def ask(token: str) -> tuple[int, str]:
        status, reported = await admin.ask(
            "GET", "/admin/unverified", headers={"Authorization": f"Bearer {token}"}
        )
        return status, reported.get("error", "")

    for _ in range(3 * MOST_WRONG):
        assert await ask("w" * 40) == (401, "token")
    assert (await ask(TOKEN))[0] == 200
    with structlog.testing.capture_logs() as lines:
        for number in range(MOST_WRONG - 1):
            assert await ask(f"{number:040}") == (401, "token")
        for token in ("x" * 40, "y" * 40, "w" * 40, "z" * 40):
            assert await ask(token) == (429, "too_many_tokens")
        assert await ask("") == (401, "token")
        assert (await ask(TOKEN))[0] == 200
        headers = {"Authorization": f"Bearer {'v' * 40}"}
        stop = "/admin/machines/i-1/terminate"
        async with admin.session.post(stop, headers=headers) as answer:
            assert answer.status == 429
            assert 0 < int(answer.headers["Retry-After"]) <= WRONG_FOR
    assert admin.word.taken == []
    # The log has had its 20 lines of refused tokens in this minute.
    assert [line["reason"] for line in lines] == ["too_many_tokens"] * 5
    assert TOKEN not in str(lines)


async def test_each_kind_of_refusal_is_logged_with_its_reason(admin: Admin) -> None:
    with structlog.testing.capture_logs() as lines:
        for kind in (RefusalKind.UNKNOWN, RefusalKind.CONTRADICTED):
            admin.word.refusal = OperatorRequestRefusedError(kind, f"is {kind.value}")
            for _ in range(LINES + 1):
                await admin.ask("POST", "/admin/machines/i-1/terminate")
    assert Counter(line["reason"] for line in lines) == {
        "is unknown": LINES,
        "is contradicted": LINES,
    }


async def test_the_answer_without_a_token_names_the_scheme_to_use(admin: Admin) -> None:
    async with admin.session.get("/admin/unverified") as answer:
        assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_without_a_configured_token_there_is_no_admin_endpoint(
    method: str, path: str
) -> None:
    async with running() as caller:
        assert await _status(caller, method, path) == 404


async def _status(caller: Caller, method: str, path: str) -> int:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    if method == "GET":
        return (await caller.get(path, headers=headers)).status
    return (await caller.post(path, headers=headers)).status

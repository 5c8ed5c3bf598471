"""The questions under /admin: answers in JSON, and refusals that name the parameter."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from autoscaler.controller.operators.fleet_queries import FleetQueries
from autoscaler.model import events as e
from autoscaler.model.accounting import MachineUse, Usage, day_of
from autoscaler.model.changes import HistoryRow
from autoscaler.model.identifiers import MachineId, SkuName
from autoscaler.server.listening.serving import Serving
from autoscaler.server.operators.admin import AdminEndpoint
from autoscaler.server.tokens import WrongTokens
from tests.ledger.builders import World
from tests.planner.fleets import catalogue, sku
from tests.server.asked_world import AskedWorld
from tests.server.fakes import LOOPBACK
from tests.server.test_admin_endpoint import READER, TOKENS, Word


@dataclass
class Asked:
    session: aiohttp.ClientSession
    answers: AskedWorld

    async def ask(
        self, path: str, query: Mapping[str, str] | None = None, token: str = READER
    ) -> tuple[int, dict[str, Any]]:
        headers = {"Authorization": f"Bearer {token}"}
        async with self.session.get(path, params=query or {}, headers=headers) as answer:
            return answer.status, await answer.json()


@pytest_asyncio.fixture
async def asked() -> AsyncIterator[Asked]:
    world = World(catalogue(sku(max_machines=1), sku("cpu")))
    world.queue(1, 2)
    world.launch(1)
    answers = AskedWorld(world, {"2": [HistoryRow(1000.0, "job", "2", "queued", "gpu")]})
    port: FleetQueries = answers
    async with (
        Serving(
            LOOPBACK,
            AdminEndpoint(
                Word(),
                Word(),
                port,
                Word(),
                lambda: TOKENS,
                WrongTokens(asyncio.get_running_loop().time),
            ),
            [],
        ) as serving,
        aiohttp.ClientSession(f"http://{serving.address}") as session,
    ):
        yield Asked(session, answers)


ROUTES = [
    "/admin/status",
    "/admin/jobs",
    "/admin/machines",
    "/admin/explain",
    "/admin/history/2",
    "/admin/faults",
    "/admin/cost",
]


@pytest.mark.parametrize("path", ROUTES)
async def test_no_question_is_answered_without_a_valid_token(asked: Asked, path: str) -> None:
    assert await asked.ask(path, token="x" * 40) == (401, {"error": "token"})


async def test_the_status_has_the_troubles_and_each_sku(asked: Asked) -> None:
    code, seen = await asked.ask("/admin/status")
    assert code == 200
    assert (seen["waiting"], seen["blocked"], seen["dollars_per_hour"]) == (2, 1, 2.5)
    assert seen["faults"] == [
        {
            "code": "max_machines",
            "about": "gpu",
            "message": "1 job waits: max_machines of gpu (1) is reached",
            "skus": ["gpu"],
            "jobs": 1,
            "mend": "raise max_machines of gpu in fleet.yaml, or wait",
            "effects": [],
            "since": None,
            "trend": "steady",
            "after": "",
            "recovered_at": None,
            "error": "",
        }
    ]
    assert [one["sku"] for one in seen["skus"]] == ["gpu", "cpu"]


async def test_waiting_jobs_have_their_reasons(asked: Asked) -> None:
    _, found = await asked.ask("/admin/jobs", {"sku": "gpu", "limit": "2"})
    waits = [job["wait"] for job in found["jobs"]]
    assert [(wait["place"], wait["reasons"][0]["code"]) for wait in waits] == [
        (1, "machine_booting"),
        (2, "max_machines"),
    ]
    assert (found["total"], found["counts"]) == (2, {"machine_booting": 1, "max_machines": 1})
    none = {"at": 1000.0, "jobs": [], "total": 0, "counts": {}}
    assert await asked.ask("/admin/jobs", {"sku": "cpu"}) == (200, none)


async def test_lists_are_narrowed_and_in_pages(asked: Asked) -> None:
    for query, ids in (
        ({"limit": "1"}, [1]),
        ({"limit": "1", "page": "2"}, [2]),
        ({"page": "201"}, []),
        ({"reason": "max_machines"}, [2]),
        ({"repository": "acme/widgets"}, [1, 2]),
        ({"repository": "acme/other"}, []),
        ({"older_than": "60"}, []),
    ):
        code, found = await asked.ask("/admin/jobs", query)
        assert (code, [job["id"] for job in found["jobs"]]) == (200, ids), query
    provider = asked.answers.world.state.machines[MachineId("c0")].provider
    _, found = await asked.ask("/admin/machines", {"provider": provider})
    assert (len(found["machines"]), found["total"], found["counts"]) == (1, 1, {"launched": 1})
    code, found = await asked.ask("/admin/machines", {"provider": "nowhere"})
    assert (code, found["error"]) == (404, "unknown")


async def test_running_jobs_and_machines_are_listed(asked: Asked) -> None:
    world = asked.answers.world
    world.boot("c0")
    world.do(e.HealthChecksReported, MachineId("c0"), True, "ok")
    world.starts(1, world.assignment("c0"))
    _, running = await asked.ask("/admin/jobs", {"state": "in_progress"})
    assert [(job["id"], job["machine"]) for job in running["jobs"]] == [(1, "c0")]
    _, found = await asked.ask("/admin/machines", {"state": "assigned"})
    assert [(one["id"], one["job"]) for one in found["machines"]] == [("c0", 1)]
    assert await asked.ask("/admin/machines", {"state": "ready"}) == (
        200,
        {"at": world.now, "machines": [], "total": 0, "counts": {"assigned": 1}},
    )
    assert await asked.ask("/admin/machines", {"sku": "cpu"}) == (
        200,
        {"at": world.now, "machines": [], "total": 0, "counts": {}},
    )
    code, found = await asked.ask("/admin/history/2")
    assert (code, list(found)) == (200, ["history"])


@pytest.mark.parametrize(
    "path",
    [
        "/admin/status",
        "/admin/jobs",
        "/admin/machines",
        "/admin/explain?job=2",
        "/admin/explain?labels=gpu&repository=acme/widgets",
    ],
)
async def test_answers_with_ages_have_the_controller_s_time(asked: Asked, path: str) -> None:
    asked.answers.world.now += 3600.0
    _, found = await asked.ask(path)
    assert found["at"] == asked.answers.world.now


async def test_a_job_is_explained_with_its_history(asked: Asked) -> None:
    code, found = await asked.ask("/admin/explain", {"job": "2"})
    explained = found["explanation"]
    assert code == 200
    assert isinstance(explained, dict)
    assert explained["job"]["wait"]["reasons"][0]["code"] == "max_machines"
    assert "max_machines" in explained["next_event"]["what"]
    assert found["history"] == [
        {
            "at": 1000.0,
            "kind": "job",
            "record": "2",
            "event": "queued",
            "detail": "gpu",
            "code": "",
        }
    ]


async def test_a_job_that_is_only_in_the_history_is_explained_by_it(asked: Asked) -> None:
    asked.answers.rows["7"] = [HistoryRow(1.0, "job", "7", "completed")]
    code, found = await asked.ask("/admin/explain", {"job": "7"})
    assert (code, found["explanation"]) == (200, None)
    assert len(found["history"]) == 1


async def test_labels_are_explained_for_a_repository(asked: Asked) -> None:
    query = {"labels": "gpu, self-hosted", "repository": "acme/widgets"}
    _, found = await asked.ask("/admin/explain", query)
    assert found["explanation"]["skus"] == ["gpu"]
    _, found = await asked.ask("/admin/explain", {"labels": "gpu"})
    assert (found["explanation"]["skus"], found["explanation"]["repository"]) == (["gpu"], "")


async def test_queued_jobs_that_no_sku_serves_are_counted_and_listed(asked: Asked) -> None:
    world = asked.answers.world
    world.queue(7, labels=("gpuu",))
    _, seen = await asked.ask("/admin/status")
    assert (seen["waiting"], seen["unmatched"]) == (2, {"labels": 1})
    _, found = await asked.ask("/admin/jobs", {"state": "unmatched"})
    (job,) = found["jobs"]
    (reason,) = job["wait"]["reasons"]
    assert (job["id"], job["sku"]) == (7, None)
    assert (reason["code"], reason["message"]) == (
        "labels",
        "no SKU has all of the job's labels",
    )


@pytest.mark.parametrize("path", ["/admin/history/9", "/admin/explain?job=9"])
async def test_what_no_record_shows_is_unknown(asked: Asked, path: str) -> None:
    code, found = await asked.ask(path)
    assert (code, found["error"]) == (404, "unknown")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/admin/status?x=1", "unknown parameter x"),
        ("/admin/jobs?limit=0", "`limit` must be a number from 1 to 250"),
        ("/admin/jobs?limit=251", "`limit` must be a number from 1 to 250"),
        ("/admin/jobs?limit=000005000000", "`limit` must be a number from 1 to 250"),
        ("/admin/jobs?limit=ten", "`limit` must be a number from 1 to 250"),
        ("/admin/jobs?state=done", "waiting, in_progress or unmatched"),
        ("/admin/jobs?state=unmatched&sku=gpu", "`sku` must not be given with `state` unmatched"),
        ("/admin/jobs?sku=a%20b", "`sku` must be the name"),
        ("/admin/jobs?page=0", "`page` must be a number from 1 to 201"),
        ("/admin/jobs?limit=250&page=42", "`page` must be a number from 1 to 41"),
        ("/admin/jobs?older_than=5m", "`older_than` must be a number of seconds from 0 to"),
        ("/admin/jobs?older_than=%c2%b2", "`older_than` must be a number of seconds"),
        ("/admin/jobs?reason=nothing", "`reason` must be a code of jobs that are waiting"),
        ("/admin/jobs?reason=labels", "`reason` must be a code of jobs that are waiting"),
        ("/admin/jobs?reason=capasity", "are waiting: did you mean capacity?"),
        ("/admin/jobs?state=unmatched&reason=quota", "a code of jobs that are unmatched"),
        ("/admin/jobs?state=in_progress&reason=quota", "must not be given with `state` in_"),
        ("/admin/jobs?repository=acme", "the repository must have the form OWNER/NAME"),
        ("/admin/machines?provider=a%20b", "`provider` must be the name of a provider"),
        ("/admin/machines?state=sleeping", "`state` must be one of requested, launched"),
        ("/admin/cost?days=94", "`days` must be a number from 1 to 93"),
        ("/admin/cost?by=sku,os", "`by` must be some of provider,sku,repository"),
        ("/admin/explain", "`job` or `labels` must be given"),
        ("/admin/explain?job=x", "`job` must be the number"),
        ("/admin/explain?job=123456789012345678901", "`job` must be the number"),
        ("/admin/explain?repository=acme/w", "give 1 to 32 labels"),
        ("/admin/explain?repository=acme/w&labels=a,,b", "and none of them empty"),
        ("/admin/explain?repository=acme&labels=a", "the repository must have the form OWNER/NAME"),
    ],
)
async def test_an_unusable_query_is_refused_with_what_is_allowed(
    asked: Asked, path: str, words: str
) -> None:
    code, found = await asked.ask(path)
    assert (code, found["error"]) == (400, "malformed")
    assert words in str(found["reason"])


async def test_a_name_that_can_have_no_history_is_refused_with_what_has_one(asked: Asked) -> None:
    reason = (
        "ID must be that of a job, machine, runner or launch request, or the name of a SKU, "
        "provider or installation, or all"
    )
    refused = (400, {"error": "malformed", "reason": reason})
    assert await asked.ask("/admin/history/a%20b") == refused


async def test_costs_are_by_the_keys_of_the_query(asked: Asked) -> None:
    east = next(iter(asked.answers.world.state.machines.values())).provider
    day = day_of(asked.answers.world.now)
    asked.answers.used = [
        Usage(day - ago, east, SkuName("gpu"), "acme/w", MachineUse.JOB, 3600.0, dollars)
        for ago, dollars in ((0, 1.0), (1, 2.0), (30, 4.0))
    ]
    code, found = await asked.ask("/admin/cost")
    assert (code, found["since"], found["total"]["dollars"]) == (200, "1969-12-03", 3.0)
    assert [(row["sku"], row["repository"]) for row in found["rows"]] == [("gpu", "")]
    _, found = await asked.ask("/admin/cost", {"by": "repository,provider", "days": "1"})
    (row,) = found["rows"]
    assert (row["provider"], row["sku"], row["repository"]) == (east, "", "acme/w")
    assert (row["dollars"], row["hours"], row["jobs"]) == (1.0, 1.0, 1)


async def test_a_store_that_fails_is_reported(asked: Asked) -> None:
    asked.answers.broken = True
    assert (await asked.ask("/admin/cost"))[0] == 503
    assert await asked.ask("/admin/history/2") == (503, {"error": "store"})

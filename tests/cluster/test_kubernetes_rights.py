"""The shipped rights are enough, and the audit log shows that no other ones are used."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
import yaml

from autoscaler.controller.ports.provider import OutcomeUnknownError
from autoscaler.providers.kubernetes.provider import KubernetesProvider
from lab.kubernetes.namespaces import RIGHTS
from tests.cluster.conftest import Place, listening, names_of, until
from tests.providers.contract import listed
from tests.providers.doubles import ManualClock, RememberingTelemetry

pytestmark = pytest.mark.asyncio(loop_scope="session")


def shipped() -> set[tuple[str, str]]:
    """Every verb and resource of the shipped roles; those of a namespace begin with `+`."""
    found = set()
    for file in RIGHTS.glob("*.yaml"):
        for body in yaml.safe_load_all(file.read_text()):
            where = "+" if body["kind"] == "Role" else ""
            for rule in body.get("rules", ()):
                found |= {(v, where + r) for v in rule["verbs"] for r in rule["resources"]}
    return found


def used(event: dict[str, Any]) -> tuple[str, str]:
    target = event["objectRef"]
    parts = [target["resource"], *([target["subresource"]] if "subresource" in target else [])]
    return event["verb"], ("+" if target.get("namespace") else "") + "/".join(parts)


def requests(place: Place) -> list[dict[str, Any]]:
    """The audit log's events of the place's controller."""
    return [one for one in place.cluster.audit_events() if one["user"]["username"] == place.user]


async def test_all_that_a_provider_does_needs_exactly_the_shipped_rights(place: Place) -> None:
    settings = replace(place.settings, provisioner=False)
    provider = KubernetesProvider(settings, RememberingTelemetry(), ManualClock())
    await provider.open()
    await place.add_node()
    text = await provider.prepare(place.make_order(2, "rights"))
    [first, second] = (await provider.launch(text)).launched
    await provider.launch(text)
    await listed(provider)
    await listening(provider)
    await provider.notices.shown([first.provider_id])
    await provider.protect(first.provider_id)
    await provider.quotas()
    await provider.verify(await place.pod_token(names_of(text)[0], settings.audience))
    with suppress(OutcomeUnknownError):
        # The node has no kubelet that could answer.
        await provider.console(second.provider_id)
    await provider.terminate([first.provider_id, second.provider_id])
    await provider.delete_unused([])
    await provider.close()

    async def all_is_logged() -> bool:
        # The API server writes events after its answers, and that of a watch some time after its end.
        return {used(event) for event in requests(place)} >= shipped()

    await until(all_is_logged)
    mine = requests(place)
    refused = [one for one in mine if one["responseStatus"]["code"] == 403]
    assert refused == []
    assert {used(event) for event in mine} == shipped()
    assert not any("secret" in event["objectRef"]["resource"] for event in mine)

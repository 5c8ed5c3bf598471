"""The checks of overlays against Pod Security `restricted` answer as the API server does."""

from copy import deepcopy
from typing import Any

import pytest

from autoscaler.providers.kubernetes.manifest.overlay import _merge
from autoscaler.providers.kubernetes.manifest.pod import named_pod, pod_template
from autoscaler.providers.kubernetes.manifest.pod_security import pod_security_problems
from tests.cluster.admission import refusal
from tests.cluster.conftest import SKU, Place
from tests.providers.pod_security_cases import ALLOWED, APPARMOR, FORBIDDEN, STRICTER

pytestmark = pytest.mark.asyncio(loop_scope="session")


def with_overlay(place: Place, overlay: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The pod with an overlay that is not checked, and what the check says about it."""
    option = place.settings.options[(SKU, 0)]
    template = pod_template(place.settings, option, place.make_order(1, "security"))
    merged = _merge(deepcopy(template), overlay, "", [])
    return named_pod(merged, "security", 0), list(pod_security_problems(template, merged))


async def test_both_refuse_what_restricted_forbids(place: Place) -> None:
    overlays = [{"spec": case.spec} for case in FORBIDDEN]
    for overlay in [*overlays, {"metadata": {"annotations": {APPARMOR: "unconfined"}}}]:
        pod, problems = with_overlay(place, overlay)
        assert problems, overlay
        assert "violates PodSecurity" in await refusal(place, pod), overlay


async def test_both_accept_what_restricted_allows(place: Place) -> None:
    for spec in ALLOWED:
        pod, problems = with_overlay(place, {"spec": spec})
        assert (problems, await refusal(place, pod)) == ([], ""), spec


async def test_a_newer_api_server_lets_the_root_of_a_user_namespace_pass(place: Place) -> None:
    for case in STRICTER:
        pod, problems = with_overlay(place, {"spec": case.spec})
        assert problems, case
        assert await refusal(place, pod) == "", case

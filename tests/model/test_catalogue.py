"""Keys, labels and defaults of the catalogue, and the keys of cooldowns."""

import pytest

from autoscaler.model.catalogue import (
    Access,
    Architecture,
    CapacityType,
    Catalogue,
    Deadlines,
    IdlePolicy,
    Limits,
    OperatingSystem,
    RegistrationRate,
    Scope,
    Sku,
)
from autoscaler.model.cooldowns import (
    Cooldown,
    active_cooldown,
    launch_option_key,
    offering_key,
    quota_key,
    registration_key,
    sku_offering_key,
    throttle_key,
)
from autoscaler.model.identifiers import InstallationId, Installations, ProviderName, SkuName
from tests.planner.fleets import offering


def bare_sku() -> Sku:
    return Sku(
        SkuName("win"),
        frozenset({"win", "big"}),
        OperatingSystem.WINDOWS,
        Architecture.ARM64,
        (),
        access=Access(forks=True),
    )


def test_the_key_of_an_offering_has_all_its_parts() -> None:
    spot = offering("g6.xlarge", "us-east-1a", CapacityType.SPOT, quota="G-spot")
    assert spot.key == "east/g6.xlarge/us-east-1a/spot"
    assert spot.quota_key == "east/G-spot"


def test_a_sku_offers_its_labels_and_githubs_three_default_labels() -> None:
    assert bare_sku().offered_labels == {
        *("win", "big", "self-hosted", "windows", "arm64"),
        "no-rerun",
    }


def test_a_sku_has_default_settings() -> None:
    sku = bare_sku()
    assert sku.idle == IdlePolicy(minimum=0, timeout=600.0, schedule=(), max_age=86400.0)
    assert sku.deadlines == Deadlines(boot=900.0, health_checks=600.0, ready_silence=300.0)
    assert (sku.lifetime, sku.access, sku.unlabelled) == (
        86400.0,
        Access(("*",), forks=True),
        False,
    )
    assert sku.max_machines is None


def test_a_catalogue_has_no_caps_unless_given() -> None:
    known = Catalogue("ci", Installations(InstallationId("id")), {}, ())
    assert known.limits == Limits(None, None, {})
    assert known.registration == RegistrationRate(burst=25, per_second=2.5)


def test_a_scope_is_an_organisation_or_a_repository() -> None:
    assert Scope("Acme", None).key == "org:Acme"
    assert Scope("acme", "widgets").key == "repo:acme/widgets"
    assert Scope("acme", None).runner_group == "Default"


def test_cooldown_keys_show_what_is_on_hold() -> None:
    assert offering_key("east/g5/a/spot") == "offering:east/g5/a/spot"
    assert sku_offering_key(SkuName("gpu"), "east/g5/a/spot") == "offering:east/g5/a/spot/gpu"
    assert quota_key("east/G") == "quota:east/G"
    assert throttle_key(ProviderName("east")) == "throttle:east"
    assert launch_option_key(SkuName("gpu"), 2) == "option:gpu/2"
    assert registration_key("org:acme") == "register:org:acme"


@pytest.mark.parametrize(("now", "expected"), [(99.0, True), (100.0, False), (101.0, False)])
def test_a_hold_ends_exactly_at_its_end(now: float, expected: bool) -> None:
    cooldown = Cooldown("k", 100.0, 1, "why")
    assert (active_cooldown({"k": cooldown}, "k", now) is cooldown) is expected
    assert active_cooldown({"k": cooldown}, "other", now) is None

"""Accepted configurations: their defaults, and the model's types that they become."""

import json
from pathlib import Path

import pytest

from autoscaler.config import (
    limits,
    load,
    not_in_force,
    registration_rate,
    scopes,
    sku,
)
from autoscaler.model.catalogue import (
    Access,
    Architecture,
    CapacityType,
    Catalogue,
    Deadlines,
    IdlePolicy,
    LaunchOption,
    OperatingSystem,
    RegistrationRate,
    ScheduledMinimum,
    Scope,
)
from autoscaler.model.identifiers import InstallationId, Installations, ProviderName
from autoscaler.model.jobs.demand import classify
from autoscaler.providers.registry import provider_kinds
from tests.config.fleet_file import (
    EXAMPLE,
    MINIMAL,
    Folder,
    changed,
    on_ec2,
    on_kubernetes,
)


def test_every_key_of_the_example_is_accepted(folder: Folder) -> None:
    configuration = folder.load(EXAMPLE.read_text())
    settings = configuration.settings
    assert configuration.warnings == ()
    assert list(settings.skus) == [
        "linux.g5.4xlarge.nvidia.gpu",
        "windows.g4dn.xlarge",
        "linux.arm64.m7g.4xlarge",
        "linux.rocm.gpu.2",
    ]
    first = settings.skus["linux.g5.4xlarge.nvidia.gpu"]
    assert on_ec2(first).capacity == (CapacityType.SPOT, CapacityType.ON_DEMAND)
    assert on_kubernetes(first, 1).pod is not None
    assert first.idle.schedule[0].duration == 3 * 3600
    assert settings.limits.dollars_per_hour == 9000
    assert str(settings.server.listen) == "0.0.0.0:8443"
    assert configuration.sqlite_file() == folder.path / "state.db"


def test_omitted_keys_have_their_defaults(folder: Folder) -> None:
    settings = folder.load(MINIMAL).settings
    found = settings.skus["gpu"]
    assert (found.os, found.arch) == (OperatingSystem.LINUX, Architecture.X64)
    assert on_ec2(found).capacity == (CapacityType.ON_DEMAND,)
    assert on_kubernetes(found).price == 0
    assert found.image is not None
    assert found.image.owner == "self"
    assert settings.github.api_url == "https://api.github.com"
    assert settings.server.webhook_listen is None
    assert registration_rate(settings) == RegistrationRate(25, 2.5)
    with_schedule = changed(
        ('"runner-*"}', '"runner-*"}\n    idle: {schedule: [{cron: "0 7 * * *", min: 1}]}')
    )
    (entry,) = folder.load(with_schedule).settings.skus["gpu"].idle.schedule
    assert (entry.duration, entry.timezone) == (3600, "UTC")


def test_a_sku_of_the_file_becomes_a_sku_of_the_model(folder: Folder) -> None:
    settings = folder.load(EXAMPLE.read_text()).settings
    launch_options = (LaunchOption(ProviderName("us-east-1"), (CapacityType.SPOT,), ()),)
    found = sku(settings, "linux.g5.4xlarge.nvidia.gpu", launch_options)
    assert found.labels == {"linux.g5.4xlarge.nvidia.gpu"}
    assert found.launch_options is launch_options
    assert found.max_machines == 2400
    assert found.access == Access(("acme/*",), forks=False)
    text = 'access: {public_repositories: false, branches: [main, "release/*"], contact: ask}'
    restricted = folder.load(changed(("    on: [{", f"    {text}\n    on: [{{"))).settings
    assert sku(restricted, "gpu", ()).access == Access(
        ("*",),
        forks=False,
        contact="ask",
        public_repositories=False,
        branches=("main", "release/*"),
    )
    assert found.lifetime == 86400
    assert found.idle == IdlePolicy(
        2, 600, (ScheduledMinimum("0 7 * * 1-5", "America/New_York", 10800, 20),), 86400
    )
    assert found.deadlines == Deadlines()


AMD = "accelerator: {vendor: amd, count: 1}"


@pytest.mark.case(
    "Windows images boot Windows machines, with more time",
    topic="Images and disks",
    source="EC2: Windows Fast Launch",
)
@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("os: windows", Deadlines(boot=1800)),
        (f"driver: install, {AMD}", Deadlines(health_checks=2700)),
        ("os: windows, deadlines: {boot: 5m}", Deadlines(boot=300)),
        (
            f"driver: install, {AMD}, deadlines: {{health_checks: 90s, ready_silence: 1h}}",
            Deadlines(900, 90, 3600),
        ),
    ],
)
def test_deadlines_depend_on_os_and_machine_type(
    folder: Folder, keys: str, expected: Deadlines
) -> None:
    text = MINIMAL.replace("    on: [{", "    {OTHER}on: [{")
    apart = keys.replace(", deadlines", "\ndeadlines").replace(", accelerator", "\naccelerator")
    other = "\n    ".join(apart.split("\n")) + "\n    "
    settings = folder.load(text.replace("{OTHER}", other)).settings
    assert sku(settings, "gpu", ()).deadlines == expected


def test_a_sku_with_a_cap_has_a_fair_share(folder: Folder) -> None:
    text = changed(("    on: [{", "    max_machines: 10\n    fair_share: 0.25\n    on: [{"))
    assert sku(folder.load(text).settings, "gpu", ()).share == 2
    assert sku(folder.load(changed()).settings, "gpu", ()).share is None


def test_labels_are_the_name_and_the_extra_ones_in_lower_case(folder: Folder) -> None:
    settings = folder.load(changed(("  gpu:\n", "  GPU:\n    labels: [A10G, fast]\n"))).settings
    assert sku(settings, "GPU", ()).labels == {"gpu", "a10g", "fast"}


def test_reruns_are_off_unless_a_sku_allows_them(folder: Folder) -> None:
    reported = folder.load(changed(("  gpu:\n", "  gpu:\n    rerun_interrupted: 2\n"))).settings
    assert sku(reported, "gpu", ()).rerun_interrupted == 2
    assert sku(folder.load(MINIMAL).settings, "gpu", ()).rerun_interrupted == 0
    problem = folder.problem(changed(("  gpu:\n", "  gpu:\n    labels: [No-Rerun]\n")))
    assert "default label of all runners" in str(problem)


def test_scopes_keep_their_order_and_groups(folder: Folder) -> None:
    text = changed(
        (
            "[{org: acme}]",
            "[{repo: acme/one, runner_group: g}, {org: acme, repositories: [acme/t*]}]",
        )
    )
    assert scopes(folder.load(text).settings) == (
        Scope("acme", "one", "g"),
        Scope("acme", None, "Default", ("acme/t*",)),
    )


def test_quotas_by_family_hold_for_each_capacity_type(folder: Folder) -> None:
    text = changed(
        ("[sg-0a]}", "[sg-0a], quotas: {spot/Standard: 3, Standard: 64, on-demand/P: 0}}"),
        ("store:", "limits: {machines: 5, dollars_per_hour: 1.5}\nstore:"),
    )
    found = limits(folder.load(text).settings)
    assert (found.machines, found.dollars_per_hour) == (5, 1.5)
    assert found.quotas == {
        "east/spot/Standard": 3,
        "east/on-demand/Standard": 64,
        "east/on-demand/P": 0,
    }


def test_the_catalogue_is_built_from_the_settings(folder: Folder) -> None:
    settings = folder.load(EXAMPLE.read_text()).settings
    skus = {name: sku(settings, name, ()) for name in settings.skus}
    catalogue = Catalogue(
        fleet=settings.fleet,
        installations=Installations(InstallationId("i")),
        skus={found.name: found for found in skus.values()},
        scopes=scopes(settings),
        limits=limits(settings),
    )
    found = classify(catalogue, "acme/widgets", ["self-hosted", "Linux.ROCm.gpu.2"])
    assert found is not None
    assert (found.runner_group, found.skus) == ("gpu", ("linux.rocm.gpu.2",))
    assert classify(catalogue, "other/widgets", ["linux.rocm.gpu.2"]) is None


def test_keys_without_effect_are_named(folder: Folder) -> None:
    text = EXAMPLE.read_text().replace(
        "sqlite:///state.db", "postgresql://autoscaler@db/autoscaler"
    )
    arm = "  linux.arm64.m7g.4xlarge:\n"
    install = "    driver: install\n    accelerator: {vendor: amd, count: 1}\n"
    assert arm in text
    text = text.replace(arm, arm + install)
    on_pods = next(line for line in text.splitlines(keepends=True) if "runner-cuda" in line)
    configuration = folder.load(text.replace(on_pods, ""))
    assert configuration.sqlite_file() is None
    keys = [line.partition(": ")[0] for line in not_in_force(configuration.settings)]
    assert keys == ['skus."linux.arm64.m7g.4xlarge".driver']


def test_every_key_of_a_plain_configuration_has_an_effect(folder: Folder) -> None:
    assert not_in_force(folder.load(MINIMAL).settings) == []


def test_settings_are_frozen_and_can_be_written_back(folder: Folder) -> None:
    settings = folder.load(EXAMPLE.read_text()).settings
    with pytest.raises(ValueError, match="frozen"):
        settings.fleet = "other"  # type: ignore[misc]
    # JSON is YAML: what is dumped is a fleet.yaml again.
    dumped = settings.model_dump_json(by_alias=True, exclude_defaults=True)
    assert folder.load(dumped).settings == settings


def test_a_configuration_can_be_loaded_without_its_files(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(MINIMAL)
    assert load(file, provider_kinds(), files=False).settings.fleet == "ci"


def test_yaml_aliases_can_replace_whole_values(folder: Folder) -> None:
    text = changed(
        ('image: {name: "runner-*"}', 'image: &image {name: "runner-*"}'),
    )
    text += "  cpu:\n    on: [{provider: east, instance_types: [m7i.large]}]\n    image: *image\n"
    settings = folder.load(text).settings
    assert settings.skus["cpu"].image == settings.skus["gpu"].image


@pytest.mark.case(
    "`on`, `no` and `yes` are text",
    topic="Operators' files",
    source="YAML 1.2.2",
)
def test_on_and_no_are_strings_and_not_booleans(folder: Folder) -> None:
    settings = folder.load(changed(("fleet: ci", "fleet: no"))).settings
    assert settings.fleet == "no"
    assert json.loads(settings.model_dump_json())["skus"]["gpu"]["launch_options"]

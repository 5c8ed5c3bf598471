"""The fleet of the chaos runs: four SKUs and two providers, with tight limits."""

from dataclasses import replace

from autoscaler.controller.ports.telemetry import Telemetry
from autoscaler.controller.reconciler import Pace
from autoscaler.model.catalogue import (
    Access,
    Architecture,
    CapacityType,
    Catalogue,
    IdlePolicy,
    LaunchOption,
    LaunchRate,
    Limits,
    Offering,
    OperatingSystem,
    Rate,
    ScheduledMinimum,
    Scope,
    Sku,
)
from autoscaler.model.identifiers import Installations, ProviderName, SkuName
from autoscaler.simulator.world.controller.store import INSTALLATION
from autoscaler.simulator.world.setting import Setting

EAST, WEST = ProviderName("east"), ProviderName("west")
SPOT, ON_DEMAND = CapacityType.SPOT, CapacityType.ON_DEMAND


def _option(
    provider: ProviderName, kind: str, dollars: float, *capacity: CapacityType
) -> LaunchOption:
    quota = {"g": "G", "c": "C"}[kind[0]]
    units = 48 if "12x" in kind else 4
    return LaunchOption(
        provider,
        capacity,
        tuple(
            Offering(
                provider, kind, zone, c, dollars * dear / (3 if c is SPOT else 1), quota, units
            )
            for c in capacity
            for zone, dear in (("a", 1.0), ("b", 1.5))
        ),
    )


def _sku(
    name: str,
    *launch_options: LaunchOption,
    most: int | None,
    share: float = 1.0,
    warm: int = 0,
    arm: bool = False,
    again: int = 0,
) -> Sku:
    # The world begins at 8:00 UTC: the minimum ends before the chaos does.
    schedule = (ScheduledMinimum("0 8 * * *", "UTC", 5400.0, warm),) if warm else ()
    return Sku(
        SkuName(name),
        frozenset({name}),
        OperatingSystem.LINUX,
        Architecture.ARM64 if arm else Architecture.X64,
        launch_options,
        max_machines=most,
        fair_share=share,
        idle=IdlePolicy(timeout=600.0, schedule=schedule),
        access=Access(forks=True),
        rerun_interrupted=again,
    )


QUOTA = {"east/G": 120, "west/G": 192, "west/C": 60}

SKUS = (
    _sku(
        "gpu", _option(EAST, "g5.xlarge", 1.0, SPOT, ON_DEMAND), most=12, share=0.5, warm=1, again=1
    ),
    _sku(
        "big",
        _option(EAST, "g5.12xlarge", 5.7, SPOT),
        _option(WEST, "g6.12xlarge", 4.6, ON_DEMAND),
        most=3,
        again=1,
    ),
    _sku("cpu", _option(WEST, "c7i.xlarge", 0.2, ON_DEMAND), most=6),
    _sku("arm", _option(WEST, "c7g.xlarge", 0.2, SPOT), most=None, arm=True, again=2),
)

LABELS: tuple[tuple[str, ...], ...] = (
    ("gpu",),
    ("gpu",),
    ("gpu", "linux"),
    ("self-hosted", "gpu", "x64"),
    ("big",),
    ("cpu",),
    ("cpu", "Linux"),
    ("arm",),
    ("arm", "ARM64"),
    ("gpu", "no-rerun"),
)

CATALOGUE = Catalogue(
    fleet="ci",
    installations=Installations(INSTALLATION),
    skus={sku.name: sku for sku in SKUS},
    scopes=(Scope("acme", None),),
    limits=Limits(machines=20, dollars_per_hour=16.0, quotas=QUOTA),
    launch_rates={EAST: LaunchRate(Rate(5, 0.5)), WEST: LaunchRate(Rate(5, 0.5))},
)

SHORT_IDLE = IdlePolicy(timeout=120.0)
"""For worlds of less than an hour, which end once the last machine has ended."""

SETTING = Setting(
    catalogue=CATALOGUE,
    quota=QUOTA,
    boot={SkuName("gpu"): 40.0, SkuName("big"): 90.0, SkuName("cpu"): 25.0, SkuName("arm"): 30.0},
    telemetry=Telemetry(),
    pace=Pace(batch_idle=0.035, batch_max=1.0, tick=30.0),
)

SETTING_OF_REPLICAS = replace(
    SETTING,
    catalogue=replace(CATALOGUE, skus={sku.name: replace(sku, idle=SHORT_IDLE) for sku in SKUS}),
)

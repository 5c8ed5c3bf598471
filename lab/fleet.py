"""The settings of a laboratory, and the fleet.yaml that its controller gets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.ec2.seeding import Network
from lab.ec2.service import LabEc2
from lab.github.settings import DeliveryFaults, Limits, Patience
from lab.kubernetes.lab_pods import LabNode
from lab.machines.interception import RequestListener
from lab.machines.misbehaviour import Misbehaviour

APP_ID = 1234
MOST_PROCESSES = 100
"""Maximum number of machines that run the real agent in their own processes."""

SQLITE = "sqlite:///state.db"
"""The store of a laboratory with one controller, in its folder."""

VERSIONS_FILE = "versions.yaml"
"""The name of the file with the runner that machines with stock images install."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Real seconds between two looks at a replica's /readyz, and for its answer.

    After this many `failures` in a row, the replica is not ready.
    """

    every: float = 1.0
    patience: float = 1.0
    failures: int = 1


@dataclass(frozen=True, slots=True)
class LabFleet:
    """Settings of a laboratory. `skus` is the section of that name in fleet.yaml.

    A SKU without `image` gets an image of its own.

    `scale` is lab seconds per real second. `machine_scale` is the same for the timers of the machines' agents;
    `None` for the same value. `most_machines` is the maximum number of machines at once.
    `limits` are GitHub's rate limits, `None` for none. `registrations` is that section of fleet.yaml.
    `github_latency` is the minimum duration of a call to GitHub, in real seconds.
    `github_patience` is how long GitHub waits for runners and jobs.
    `group_repositories` are the short names of the repositories that may use the runner group, `None`
    for all. `wait_objective` is how soon jobs are to start, in lab seconds; `None` for the default.
    `public` are those of public repositories; the runner group then admits them.
    `misbehaving` is what the first machines of a SKU do wrong; it needs real agents.
    `runner_versions` are the runner versions in the images, by SKU, where they differ from the default.
    `listener` sees every request of every machine. `program` is the Python arguments that start the
    controller. With `nodes`, the lab has a Kubernetes cluster with these nodes, which is the provider
    `cluster` of `skus`. With more than one of `replicas`, that many controllers share a store on PostgreSQL
    behind a balancer, which looks at them as `probe` says. With `wine`, Windows machines run under Wine
    (`lab.windows`); otherwise the lab plays Windows with Linux processes.
    """

    organization: str
    repositories: tuple[str, ...]
    skus: Mapping[str, Mapping[str, Any]]
    scale: float = 60.0
    machine_scale: float | None = None
    most_machines: int = MOST_PROCESSES
    limits: Limits | None = None
    github_latency: float = 0.0
    github_patience: Patience = field(default_factory=Patience)
    faults: DeliveryFaults = field(default_factory=DeliveryFaults)
    registrations: Mapping[str, float] = field(
        default_factory=lambda: {"burst": 100_000, "per_second": 100_000.0}
    )
    wait_objective: int | None = None
    lose_jobs: int = 0
    pick: str = "fifo"
    seed: int = 0
    group_repositories: tuple[str, ...] | None = None
    public: tuple[str, ...] = ()
    misbehaving: Mapping[str, Sequence[Misbehaviour]] = field(default_factory=dict)
    runner_versions: Mapping[str, str] = field(default_factory=dict)
    listener: RequestListener | None = None
    program: tuple[str, ...] = ("-m", "lab.serve")
    nodes: tuple[LabNode, ...] = ()
    replicas: int = 1
    probe: Probe = field(default_factory=Probe)
    wine: bool = False

    @property
    def has_stock_images(self) -> bool:
        """Return whether machines of a SKU install the runner."""
        return any("stock" in section.get("image", {}) for section in self.skus.values())


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a laboratory is to its controllers: the URLs of GitHub, EC2 and the store, and `providers`."""

    github: str
    ec2: str
    store: str
    providers: Mapping[str, Any]


def fleet_settings(
    fleet: LabFleet, address: str, public_url: str, around: Surroundings
) -> dict[str, Any]:
    """Return the content of fleet.yaml for a controller that listens on `address`."""
    return {
        "fleet": "lab",
        "github": {
            "api_url": around.github,
            "apps": [{"id": APP_ID, "private_key_file": "github-app.pem"}],
            "webhook_secret_file": "webhook-secret",
            "scopes": [{"org": fleet.organization, "runner_group": "gpu"}],
            "registrations": dict(fleet.registrations),
        },
        "server": {
            "listen": address,
            "public_url": public_url,
            "admin_token_file": "admin-token",
        },
        "store": around.store,
        **({"versions_file": VERSIONS_FILE} if fleet.has_stock_images else {}),
        "limits": {"machines": fleet.most_machines},
        **_metrics(fleet),
        "providers": dict(around.providers),
        "skus": {
            name: {"image": {"name": f"{name}-*", "owner": "self"}, **section}
            if is_on_ec2(section)
            else dict(section)
            for name, section in fleet.skus.items()
        },
    }


def _metrics(fleet: LabFleet) -> dict[str, Any]:
    """Return the section `metrics` of fleet.yaml, if the lab needs one."""
    if fleet.wait_objective is None:
        return {}
    return {"metrics": {"wait_objectives": [f"all=.*:{fleet.wait_objective}:0.999"]}}


def ec2_section(ec2: LabEc2, network: Network) -> dict[str, Any]:
    """Return the section of the provider on the lab's EC2."""
    section = {
        "region": ec2.region,
        "subnets": list(network.subnets),
        "security_groups": [network.security_group],
        "identity_certificates": ["identity.pem"],
        "interruption_queue": ec2.queue_url,
        "rebalance_recommendations": True,
    }
    return {"ec2": section}


def is_on_ec2(section: Mapping[str, Any]) -> bool:
    """Return whether a SKU has a launch option on EC2."""
    return any("instance_types" in option for option in section["on"])

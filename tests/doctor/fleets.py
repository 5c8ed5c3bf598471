"""What a doctor sees of a fleet in which everything is fine, and the judgement of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autoscaler.config import Problem
from autoscaler.config.examinations import Check
from autoscaler.console.links import GitHubPages
from autoscaler.doctor import host
from autoscaler.doctor.github_judgement import (
    Needed,
    judge_app,
    judge_group,
    judge_installation,
    judge_limits,
    judge_runner,
    judge_server,
)
from autoscaler.doctor.host import Readiness
from autoscaler.doctor.webhook_judgement import OwnWebhook, judge_deliveries, judge_hook
from autoscaler.github.apps.permissions import permissions_for
from autoscaler.github.inspection import (
    AppFacts,
    AppRefused,
    DeliveryFacts,
    HookFacts,
    InstallationFacts,
    LimitFacts,
    ServerFacts,
)
from autoscaler.model.catalogue import Access, Catalogue, Scope
from autoscaler.model.jobs.runner_group_excess import RunnerGroup
from autoscaler.providers.ec2.checks import judgement as ec2
from autoscaler.providers.ec2.checks.judgement import (
    INTERRUPTION,
    USES,
    DiskKey,
    Egress,
    Rule,
    Subnet,
)
from tests.planner.fleets import catalogue, sku

NOW = 1_800_000_000.0
DAY = 86_400.0
APP = 7
PERMISSIONS = permissions_for(repository=False, reruns=True)
SCOPE = Scope("acme", None, "gpu", ("acme/rocket",))
PAGES = GitHubPages("https://github.com")


def served(forks: bool = False) -> Catalogue:
    """A fleet whose one SKU serves acme/rocket."""
    admitting = replace(sku("gpu"), access=Access(("acme/rocket",), forks=forks))
    return replace(catalogue(admitting), scopes=(SCOPE,))


def deliveries(count: int = 20, status: int = 200) -> tuple[DeliveryFacts, ...]:
    return tuple(DeliveryFacts(NOW - 60.0 * n, "workflow_job", status) for n in range(count))


FINE_APP = AppFacts("https://github.com/apps/ci", PERMISSIONS, ("workflow_job",), 0.4)
FINE_INSTALLATION = InstallationFacts(
    9,
    "https://github.com/organizations/acme/settings/installations/9",
    PERMISSIONS,
    ("workflow_job",),
    suspended=False,
)
FINE_GROUP = RunnerGroup("selected", False, False, ("acme/rocket",))
FINE_LIMITS = LimitFacts(5000, 4200)
FINE_HOOK = HookFacts("https://ci.acme.dev/webhook", "json", True, True)
READY = Readiness(200)
FINE_RULE = Rule("interruptions", True, {"source": ["aws.ec2"], "detail-type": [INTERRUPTION]})
FINE_SERVER = ServerFacts("3.19.0", ("2022-11-28", "2026-03-10"))
FINE_KEY = DiskKey("arn:aws:kms:us-east-1:123456789012:key/1")
QUEUE_POLICY = '{"Principal": {"Service": "events.amazonaws.com"}}'


@dataclass(frozen=True, slots=True)
class Seen:
    """What GitHub, AWS and the host show. Every default is fine."""

    app: AppFacts | AppRefused = FINE_APP
    installation: InstallationFacts | None = FINE_INSTALLATION
    catalogue: Catalogue = field(default_factory=served)
    group: RunnerGroup | None = FINE_GROUP
    limits: LimitFacts = FINE_LIMITS
    hook: HookFacts | None = FINE_HOOK
    deliveries: tuple[DeliveryFacts, ...] = field(default_factory=deliveries)
    runner_end: float | None = NOW + 60 * DAY
    account: str = "123456789012"
    answers: Mapping[str, str | None] = field(
        default_factory=lambda: dict.fromkeys(use.action for use in USES)
    )
    subnets: tuple[Subnet, ...] = (Subnet("subnet-a", "us-east-1a", 4000),)
    egress: Mapping[str, Sequence[Egress]] = field(
        default_factory=lambda: {"sg-a": (Egress("-1", None, None, True),)}
    )
    sold: Mapping[str, Sequence[str]] = field(
        default_factory=lambda: {"g5.xlarge": ("us-east-1a", "us-east-1b")}
    )
    quotas: Mapping[str, float] = field(default_factory=lambda: {"spot/G and VT": 64.0})
    spot_role: bool = True
    server: ServerFacts = FINE_SERVER
    disk_key: DiskKey = FINE_KEY
    rules: tuple[Rule, ...] = (FINE_RULE,)
    queue_policy: str = QUEUE_POLICY
    backup_age: float | None = 0.5 * DAY
    problems: tuple[Problem, ...] = ()
    free: int = 50 << 30
    connections: int = 20_000
    readiness: Readiness = READY

    def judge(self) -> list[Check]:
        """Return every check."""
        return [*self._github(), *self._aws(), *self._host()]

    def wrong(self) -> list[Check]:
        """Return the checks that found something to mend."""
        return [one for one in self.judge() if one.outcome == "wrong"]

    def _github(self) -> list[Check]:
        needed = Needed(PERMISSIONS, wants_event=True)
        own = OwnWebhook("webhook-secret", "ci.acme.dev")
        return [
            *judge_app(APP, "app.pem", self.app, needed),
            *judge_installation(
                "org:acme", APP, "https://github.com/apps/ci", self.installation, needed
            ),
            judge_group(self.catalogue, SCOPE, self.group, PAGES),
            judge_limits("org:acme", APP, self.limits),
            *judge_hook(APP, self.hook, own),
            *judge_deliveries(APP, self.deliveries, own, "https://ci.acme.dev/webhook", NOW),
            judge_server(self.server),
            judge_runner("2.330.0", "autoscaler/linux-1", self.runner_end, NOW),
        ]

    def _aws(self) -> list[Check]:
        codes = {"spot/G and VT": "L-3819A6DF"}
        return [
            ec2.judge_identity("arn:aws:sts::1:role/ci", self.account, "123456789012"),
            *ec2.judge_permissions(self.answers, ()),
            *ec2.judge_subnets(("subnet-a",), self.subnets),
            *ec2.judge_egress(("sg-a",), self.egress),
            *ec2.judge_types(("g5.xlarge",), ("us-east-1a",), self.sold),
            *ec2.judge_quotas("us-east-1", {"spot/G and VT": 4}, self.quotas, codes),
            ec2.judge_spot_role(self.spot_role),
            ec2.judge_disk_key("gpu", self.disk_key),
            ec2.judge_queue("https://sqs/queue", self.queue_policy, self.rules),
        ]

    def _host(self) -> list[Check]:
        return [
            *host.judge_problems(self.problems, "fleet.yaml"),
            host.judge_disk(Path("/var/lib/autoscaler"), self.free, 100 << 30),
            host.judge_backup(self.backup_age, "fleet.yaml"),
            host.judge_open_files(1024, self.connections, 20_000),
            host.judge_readiness("https://10.0.0.5:8443", self.readiness, "fleet.yaml"),
        ]

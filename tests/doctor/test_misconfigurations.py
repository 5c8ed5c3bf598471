"""Planted misconfigurations: `doctor` names each one, with the words and the command of this table."""

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from itertools import combinations
from typing import Any, NamedTuple

import pytest

from autoscaler.config import Problem
from autoscaler.doctor.host import Readiness
from autoscaler.doctor.printing import line
from autoscaler.github.inspection import (
    AppRefused,
    DeliveryFacts,
    HookFacts,
    LimitFacts,
    ServerFacts,
)
from autoscaler.model.jobs.runner_group_excess import RunnerGroup
from autoscaler.providers.ec2.checks.judgement import DiskKey, Egress, Subnet
from tests.doctor.fleets import (
    DAY,
    FINE_APP,
    FINE_HOOK,
    FINE_INSTALLATION,
    FINE_RULE,
    NOW,
    PERMISSIONS,
    Seen,
    deliveries,
    served,
)

FINE = Seen()
DENIED = "UnauthorizedOperation"


class Planted(NamedTuple):
    """What a doctor then sees instead, and the words and the command that it must print."""

    sees: Mapping[str, Any]
    says: str
    fix: str


def hook(**changes: Any) -> HookFacts:
    return replace(FINE_HOOK, **changes)


def without(permission: str) -> dict[str, str]:
    return {name: level for name, level in PERMISSIONS.items() if name != permission}


def denied(action: str) -> dict[str, str | None]:
    return {**FINE.answers, action: DENIED}


PLANTED: Mapping[str, Planted] = {
    "a key of another App": Planted(
        {"app": AppRefused(401, "A JSON web token could not be decoded", 0.0)},
        "GitHub refuses it: 401 A JSON web token could not be decoded",
        "save it as app.pem",
    ),
    "a clock that is ahead": Planted(
        {"app": replace(FINE_APP, clock_ahead=95.0)},
        "this host's clock is 95 s ahead of GitHub's",
        "timedatectl set-ntp true",
    ),
    "an App without re-runs": Planted(
        {"app": replace(FINE_APP, permissions={**PERMISSIONS, "actions": "read"})},
        "it does not ask for: actions: write; jobs that an interruption kills are not re-run",
        "and accept them in each installation",
    ),
    "an App without the event": Planted(
        {"app": replace(FINE_APP, events=())},
        "it does not ask for: the event workflow_job",
        "add them at the App's settings",
    ),
    "an App that is not installed": Planted(
        {"installation": None},
        "the App is not installed there",
        "https://github.com/apps/ci/installations/new",
    ),
    "a suspended installation": Planted(
        {"installation": replace(FINE_INSTALLATION, suspended=True)},
        "it is suspended",
        "unsuspend it at https://github.com/organizations/acme/settings/installations/9",
    ),
    "permissions that were not accepted": Planted(
        {
            "installation": replace(
                FINE_INSTALLATION, permissions=without("organization_self_hosted_runners")
            )
        },
        "not accepted: organization_self_hosted_runners: write; no runner can be registered",
        "accept the App's new permissions",
    ),
    "no runner group": Planted(
        {"group": None}, "the App sees no such runner group", "settings/actions/runner-groups"
    ),
    "a runner group without the repository": Planted(
        {"group": RunnerGroup("selected", False, False, ("acme/site",))},
        "it does not admit acme/rocket",
        "choose repositories at https://github.com/organizations/acme/settings",
    ),
    "a public runner group, and forks": Planted(
        {
            "group": RunnerGroup("selected", True, False, ("acme/rocket",)),
            "catalogue": served(forks=True),
        },
        "anyone's pull request could run on these machines",
        "untick Allow public repositories",
    ),
    "a runner group for every repository": Planted(
        {"group": RunnerGroup("all", False, False)},
        "it admits repositories that no SKU's access admits: every repository to come",
        "or widen access of the SKUs",
    ),
    "a rate limit that is used up": Planted(
        {"limits": LimitFacts(5000, 12)}, "12 of 5,000 requests left", "add a second App"
    ),
    "a webhook that leads elsewhere": Planted(
        {"hook": hook(url="https://smee.io/webhook")},
        "https://smee.io/webhook leads to another host than server.public_url",
        "write https://ci.acme.dev/webhook",
    ),
    "a webhook with a form": Planted(
        {"hook": hook(content_type="form")}, "it is form, not json", "choose application/json"
    ),
    "a webhook without TLS checks": Planted(
        {"hook": hook(checks_certificate=False)},
        "GitHub does not check the certificate",
        "choose Enable SSL verification",
    ),
    "a webhook that is off": Planted(
        {"hook": None}, "it is off, and fleet.yaml expects it", "or set github.webhook: none"
    ),
    "another webhook secret": Planted(
        {"deliveries": deliveries(status=401)},
        "the controller refused the signature of the newest workflow_job, 0s ago (401)",
        "into webhook-secret, and reload",
    ),
    "a webhook secret that was changed just now": Planted(
        {"deliveries": (DeliveryFacts(NOW - 90, "workflow_job", 401), *deliveries(99))},
        "the controller refused the signature of the newest workflow_job, 1m30s ago (401)",
        "into webhook-secret, and reload",
    ),
    "an Enterprise Server without runners for one job": Planted(
        {"server": ServerFacts("3.9.12", ("2022-11-28",))},
        "GitHub Enterprise Server 3.9.12 is older than 3.10",
        "upgrade the server to 3.10 or later",
    ),
    "an API that GitHub serves no more": Planted(
        {"server": ServerFacts(None, ("2026-03-10", "2028-01-01"))},
        "serves the API of 2026-03-10, 2028-01-01, not of 2022-11-28",
        "install a newer version of this program",
    ),
    "a disk key that does not exist": Planted(
        {"disk_key": DiskKey("alias/ci", exists=False)},
        "KMS knows no key alias/ci; EC2 terminates its machines at once",
        "correct volume.kms_key",
    ),
    "a disk key that is disabled": Planted(
        {"disk_key": DiskKey("alias/ci", state="Disabled")},
        "the key alias/ci is Disabled",
        "aws kms enable-key --key-id alias/ci",
    ),
    "a disk key that the role may not use": Planted(
        {"disk_key": DiskKey("alias/ci", state="", denied=("kms:CreateGrant", "kms:Decrypt"))},
        "the controller's role may not use alias/ci: kms:CreateGrant, kms:Decrypt",
        "docs/ec2.md, Customer-managed keys",
    ),
    "a queue without a rule": Planted(
        {"rules": (FINE_RULE._replace(pattern={"source": ["aws.health"]}),)},
        "no rule of EventBridge sends EC2 Spot Instance Interruption Warning to it",
        "docs/ec2.md, Interruptions",
    ),
    "a rule that is disabled": Planted(
        {"rules": (FINE_RULE._replace(enabled=False),)},
        "the rule interruptions is disabled; nothing says before EC2 interrupts",
        "aws events enable-rule --name interruptions",
    ),
    "a queue that admits no events": Planted(
        {"queue_policy": ""},
        "its policy does not let EventBridge send to it",
        "docs/ec2.md, Interruptions",
    ),
    "an old backup": Planted(
        {"backup_age": 9 * DAY},
        "the last one is 9d00h old",
        "autoscaler store backup -c fleet.yaml",
    ),
    "a proxy that does not reach the controller": Planted(
        {"deliveries": (*deliveries(2), *(DeliveryFacts(NOW, "ping", 502),) * 8)},
        "2 of the last 10 deliveries got a 2xx, others got 502",
        "curl -i https://ci.acme.dev/webhook",
    ),
    "a runner version that ends": Planted(
        {"runner_end": NOW + 3 * DAY},
        "GitHub refuses it in 3.0 days; its machines get no jobs then",
        "autoscaler images check",
    ),
    "credentials of another account": Planted(
        {"account": "210987654321"},
        "the credentials are of account 210987654321, and fleet.yaml says 123456789012",
        "aws sts get-caller-identity",
    ),
    "a policy that launches nothing": Planted(
        {"answers": denied("ec2:RunInstances")},
        "permission ec2:RunInstances: it is missing; it launches no machine",
        "add ec2:RunInstances to the controller's policy",
    ),
    "a policy that terminates nothing": Planted(
        {"answers": denied("ec2:TerminateInstances")},
        "machines are not terminated, and cost money",
        "add ec2:TerminateInstances to the controller's policy",
    ),
    "a subnet of another region": Planted(
        {"subnets": ()}, "subnet subnet-a: EC2 shows no such subnet", "aws ec2 describe-subnets"
    ),
    "a full subnet": Planted(
        {"subnets": (Subnet("subnet-a", "us-east-1a", 3),)},
        "it has only 3 free IP addresses",
        "add a subnet of this zone",
    ),
    "a security group that lets nothing out": Planted(
        {"egress": {"sg-a": (Egress("tcp", 80, 80, True),)}},
        "no security group admits port 443 outbound",
        "aws ec2 authorize-security-group-egress --group-id sg-a",
    ),
    "a type that the zone does not sell": Planted(
        {"sold": {"g5.xlarge": ("us-east-1e",)}},
        "type g5.xlarge: not sold in us-east-1a",
        "aws ec2 describe-instance-type-offerings",
    ),
    "the quota of a new account": Planted(
        {"quotas": {"spot/G and VT": 0.0}},
        "quota spot/G and VT: 0 vCPUs, and the smallest type needs 4",
        "--quota-code L-3819A6DF --desired-value 64",
    ),
    "an account without the spot role": Planted(
        {"spot_role": False},
        "the account has no AWSServiceRoleForEC2Spot",
        "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
    ),
    "a certificate of another host": Planted(
        {
            "problems": (
                Problem(
                    "fleet.yaml", 9, "server.public_url", '"a" is not among the names', "b", True
                ),
            )
        },
        'server.public_url: "a" is not among the names',
        "autoscaler check fleet.yaml",
    ),
    "a full disk": Planted(
        {"free": 200 << 20}, "0.2 of 100.0 GiB free in /var/lib/autoscaler", "du -xh"
    ),
    "a low limit of open files": Planted(
        {"connections": 500},
        "the controller accepts 500 connections of 20,000",
        "LimitNOFILE=65536",
    ),
    "a controller that does not run": Planted(
        {"readiness": Readiness(0, failure="Connection refused")},
        "https://10.0.0.5:8443 does not answer: Connection refused",
        "autoscaler serve -c fleet.yaml",
    ),
}


@pytest.mark.parametrize(
    ("sees", "what"),
    [
        ({"disk_key": DiskKey("alias/ci", state="", denied=None)}, "could not be simulated"),
        ({"backup_age": None}, "no backup by `autoscaler store backup` is known"),
        (
            {"deliveries": (DeliveryFacts(NOW, "push", 401), *deliveries(2, 502))},
            "no signed delivery",
        ),
    ],
)
def test_what_nothing_shows_is_unknown(sees: dict[str, Any], what: str) -> None:
    found = [one for one in replace(FINE, **sees).judge() if what in one.what]
    assert [one.outcome for one in found] == ["unknown"]


@pytest.mark.parametrize(
    ("server", "key"),
    [
        (ServerFacts(None, None), DiskKey("alias/aws/ebs", aws_managed=True, denied=None)),
        (ServerFacts("3.10.0", None), DiskKey("alias/ci", state="")),
    ],
)
def test_servers_and_keys_that_are_fine(server: ServerFacts, key: DiskKey) -> None:
    assert replace(FINE, server=server, disk_key=key).wrong() == []


def text(seen: Seen) -> list[str]:
    return [line(check) for check in seen.wrong()]


def test_nothing_is_wrong_with_a_fleet_that_is_fine() -> None:
    assert FINE.wrong() == []
    assert {check.outcome for check in FINE.judge()} == {"fine"}


def test_the_table_has_enough_of_them() -> None:
    assert len(PLANTED) >= 25


@pytest.mark.parametrize("name", PLANTED)
def test_doctor_names_a_planted_misconfiguration_and_what_mends_it(name: str) -> None:
    planted = PLANTED[name]
    (said,) = text(replace(FINE, **planted.sees))
    assert said.startswith("wrong ")
    assert planted.says in said
    assert planted.fix in said.partition("; fix: ")[2]


TOGETHER = [
    names
    for names in combinations(PLANTED, 3)
    if len(set().union(*(PLANTED[name].sees for name in names)))
    == sum(len(PLANTED[name].sees) for name in names)
][::400]


@pytest.mark.parametrize("names", TOGETHER, ids=[", ".join(names) for names in TOGETHER])
def test_three_at_once_are_all_named(names: tuple[str, ...]) -> None:
    sees: dict[str, Any] = reduce(lambda seen, name: {**seen, **PLANTED[name].sees}, names, {})
    said = text(replace(FINE, **sees))
    assert len(said) == len(names)
    for name in names:
        assert any(PLANTED[name].says in one and PLANTED[name].fix in one for one in said)

"""Judges what AWS shows of an account, its network, images and quotas, for `autoscaler doctor`. Pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from autoscaler.config.examinations import Check, fine, skipped, unknown, wrong

DENIED = frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"})
"""The codes of EC2, of AWS's query services and of its JSON services for a permission that is missing."""

LEAST_ADDRESSES = 16
"""Free addresses of a subnet below which a burst of jobs may not find one."""

_POLICY = "add {} to the controller's policy: docs/ec2.md, Permissions"
_HTTPS = 443

INTERRUPTION = "EC2 Spot Instance Interruption Warning"
_NOT_ANNOUNCED = "nothing says before EC2 interrupts a spot machine"


class Subnet(NamedTuple):
    """A subnet that EC2 shows."""

    id: str
    zone: str
    free_addresses: int


class Egress(NamedTuple):
    """An outbound rule of a security group. The protocol -1 is all, and its ports are None."""

    protocol: str
    first_port: int | None
    last_port: int | None
    everywhere: bool
    """Whether it admits every address. Other rules may admit GitHub's or a proxy's, which is not judged."""


class Use(NamedTuple):
    """What the controller does with a permission, and what happens without it."""

    action: str
    why: str


USES: Sequence[Use] = (
    Use("ec2:DescribeInstances", "the controller cannot see its machines, and launches none"),
    Use("ec2:DescribeImages", "it finds no image, and launches no machine"),
    Use("ec2:DescribeSubnets", "it finds no zone, and launches no machine"),
    Use("ec2:DescribeInstanceTypeOfferings", "it tries types in zones that do not sell them"),
    Use("ec2:DescribeLaunchTemplates", "unused launch templates are never deleted"),
    Use("ec2:DescribeVolumes", "disks that machines left behind are never deleted"),
    Use("ec2:DescribeSpotPriceHistory", "it uses on-demand prices for spot machines"),
    Use("ec2:DescribeCapacityReservations", "it does not know how many machines a reservation has"),
    Use("ec2:CreateLaunchTemplate", "it launches no machine"),
    Use("ec2:RunInstances", "it launches no machine"),
    Use("ec2:CreateFleet", "it launches no machine"),
    Use("ec2:DeleteLaunchTemplate", "unused launch templates are never deleted"),
    Use("ec2:TerminateInstances", "machines are not terminated, and cost money"),
    Use("ec2:GetConsoleOutput", "nothing shows why a machine did not boot"),
    Use("ec2:DeleteVolume", "disks that machines left behind are never deleted"),
    Use("pricing:GetProducts", "it uses the prices that this version was built with"),
    Use("servicequotas:ListServiceQuotas", "it launches beyond the quotas, and EC2 refuses"),
)
"""The permissions of docs/ec2.md that a call shows, without those that RunInstances implies."""


def judge_identity(arn: str, account: str, configured: str | None) -> Check:
    """Judge whose credentials these are."""
    if configured is not None and configured != account:
        return wrong(
            "identity",
            f"the credentials are of account {account}, and fleet.yaml says {configured}",
            "machines would run in another account",
            "aws sts get-caller-identity; then correct the credentials or ec2.account",
        )
    return fine("identity", f"{arn} of account {account}")


def judge_permissions(answers: Mapping[str, str | None], untried: Collection[str]) -> list[Check]:
    """Judge the answer to each action: None if it is allowed, or the code of AWS's refusal.

    `untried` are actions on things of the fleet that do not exist yet.
    """
    allowed = [one for one in answers if answers[one] is None]
    checks = (
        [fine("permissions", f"{len(allowed)} allowed: {', '.join(allowed)}")] if allowed else []
    )
    why = {one.action: one.why for one in USES}
    for action, code in answers.items():
        name = f"permission {action}"
        if code in DENIED:
            checks.append(wrong(name, "it is missing", why[action], _POLICY.format(action)))
        elif code is not None:
            checks.append(unknown(name, f"EC2 refuses the trial for another reason: {code}"))
    if untried:
        what = f"not tried, because nothing of the fleet exists: {', '.join(sorted(untried))}"
        checks.append(skipped("further permissions", what))
    return checks


def judge_subnets(configured: Sequence[str], found: Sequence[Subnet]) -> list[Check]:
    """Judge each configured subnet."""
    known = {one.id: one for one in found}
    checks = []
    for name in configured:
        subnet = known.get(name)
        if subnet is None:
            what, why = "EC2 shows no such subnet", "no machine can be launched there"
            fix = "aws ec2 describe-subnets; then correct ec2.subnets or the region"
            checks.append(wrong(f"subnet {name}", what, why, fix))
        elif subnet.free_addresses < LEAST_ADDRESSES:
            what = f"it has only {subnet.free_addresses} free IP addresses"
            why = f"no more machines can be launched in {subnet.zone}"
            fix = "add a subnet of this zone to ec2.subnets"
            checks.append(wrong(f"subnet {name}", what, why, fix))
        else:
            what = f"{subnet.free_addresses:,} free addresses in {subnet.zone}"
            checks.append(fine(f"subnet {name}", what))
    return checks


def judge_egress(configured: Sequence[str], found: Mapping[str, Sequence[Egress]]) -> list[Check]:
    """Judge the outbound rules of each configured security group; together they must admit HTTPS."""
    checks = [
        wrong(
            f"security group {name}",
            "EC2 shows no such group",
            "no machine can be launched",
            "aws ec2 describe-security-groups; then correct ec2.security_groups",
        )
        for name in configured
        if name not in found
    ]
    rules = [rule for name in configured for rule in found.get(name, ())]
    if any(_admits_https(rule) and rule.everywhere for rule in rules):
        return [*checks, fine("egress", "the security groups admit HTTPS to every address")]
    if any(map(_admits_https, rules)):
        what = "HTTPS is admitted to some addresses only: do they include GitHub's and the controller's?"
        return [*checks, unknown("egress", what, "docs/ec2.md, Network")]
    if not found:
        return checks
    group = next(name for name in configured if name in found)
    fix = (
        f"aws ec2 authorize-security-group-egress --group-id {group} "
        "--ip-permissions IpProtocol=tcp,FromPort=443,ToPort=443,IpRanges='[{CidrIp=0.0.0.0/0}]'"
    )
    why = "machines reach neither GitHub nor the controller, and miss their boot deadline"
    return [*checks, wrong("egress", "no security group admits port 443 outbound", why, fix)]


def judge_types(
    wanted: Iterable[str], zones: Collection[str], sold: Mapping[str, Collection[str]]
) -> list[Check]:
    """Judge in which of the subnets' zones each instance type is sold (`sold`: zones by type)."""
    checks = []
    for name in sorted(set(wanted)):
        where = sorted(set(sold.get(name, ())) & set(zones))
        if where:
            checks.append(fine(f"type {name}", f"sold in {', '.join(where)}"))
            continue
        fix = (
            "aws ec2 describe-instance-type-offerings --location-type availability-zone "
            f"--filters Name=instance-type,Values={name}; then add a subnet of such a zone"
        )
        what = f"not sold in {', '.join(sorted(zones))}"
        checks.append(wrong(f"type {name}", what, "it cannot be launched", fix))
    return checks


def judge_quotas(
    region: str, needed: Mapping[str, int], values: Mapping[str, float], codes: Mapping[str, str]
) -> list[Check]:
    """Judge the quotas in vCPUs, by `instance_types.quota`. `needed` are those of the smallest type of each.

    `values` are AWS's, and `codes` the quotas' codes. A new account has 0 for types with GPUs.
    """
    checks = []
    for name, vcpus in sorted(needed.items()):
        value = values.get(name)
        if value is None:
            checks.append(unknown(f"quota {name}", "AWS lists no such quota"))
        elif value < vcpus:
            fix = (
                f"aws service-quotas request-service-quota-increase --region {region} --service-code ec2 "
                f"--quota-code {codes[name]} --desired-value {max(64, 4 * vcpus)}"
            )
            what = f"{value:g} vCPUs, and the smallest type needs {vcpus}"
            checks.append(wrong(f"quota {name}", what, "EC2 refuses every launch", fix))
        else:
            checks.append(fine(f"quota {name}", f"{value:,.0f} vCPUs"))
    return checks


def judge_spot_role(exists: bool) -> Check:
    """Judge whether the account has the service-linked role for spot."""
    if exists:
        return fine("spot role", "the account has AWSServiceRoleForEC2Spot")
    return wrong(
        "spot role",
        "the account has no AWSServiceRoleForEC2Spot",
        "EC2 refuses spot machines",
        "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
    )


class Rule(NamedTuple):
    """A rule of EventBridge that has the queue as its target, with its event pattern."""

    name: str
    enabled: bool
    pattern: Mapping[str, Any]


def judge_queue(url: str, policy: str, rules: Sequence[Rule]) -> Check:
    """Judge whether EventBridge sends interruption notices to the queue. `policy` is its own, or empty."""
    name, fix = (
        "interruption queue",
        "make the rules and the queue's policy of docs/ec2.md, Interruptions",
    )
    matching = [rule for rule in rules if _matches_interruptions(rule.pattern)]
    if not matching:
        what = f"no rule of EventBridge sends {INTERRUPTION} to it"
        return wrong(name, what, _NOT_ANNOUNCED, fix)
    if not any(rule.enabled for rule in matching):
        off = matching[0].name
        what = f"the rule {off} is disabled"
        return wrong(name, what, _NOT_ANNOUNCED, f"aws events enable-rule --name {off}")
    if "events.amazonaws.com" not in policy:
        what = "its policy does not let EventBridge send to it"
        return wrong(name, what, _NOT_ANNOUNCED, fix)
    return fine(name, url)


class DiskKey(NamedTuple):
    """A KMS key of a SKU's disks. `state` is KMS's, or empty if these credentials may not read it.

    `exists` is False if KMS knows no such key. `denied` are the actions that the identity's policies do not
    allow through EC2; None if this could not be simulated.
    """

    id: str
    exists: bool = True
    aws_managed: bool = False
    state: str = "Enabled"
    denied: Sequence[str] | None = ()


def judge_disk_key(sku: str, key: DiskKey) -> Check:
    """Judge whether machines of a SKU can have disks with this key (docs/ec2.md, Customer-managed keys)."""
    name, why = f"disk key of {sku}", "EC2 terminates its machines at once (Client.InternalError)"
    page = "docs/ec2.md, Customer-managed keys"
    if not key.exists:
        return wrong(
            name, f"KMS knows no key {key.id}", why, "correct volume.kms_key, or the image"
        )
    if key.aws_managed:
        return fine(name, f"{key.id} is AWS's own, which every role of the account may use")
    if key.state not in ("Enabled", ""):
        fix = f"aws kms enable-key --key-id {key.id}; or name another key"
        return wrong(name, f"the key {key.id} is {key.state}", why, fix)
    if key.denied:
        what = f"the controller's role may not use {key.id}: {', '.join(key.denied)}"
        return wrong(name, what, why, f"add these actions through EC2 to its policy: {page}")
    if key.denied is None:
        what = f"{key.id}: whether the controller's role may use it could not be simulated"
        return unknown(name, what, f"allow iam:SimulatePrincipalPolicy for this check; {page}")
    return fine(name, f"{key.id}: the role's policies allow its use through EC2")


def _matches_interruptions(pattern: Mapping[str, Any]) -> bool:
    sources, kinds = pattern.get("source"), pattern.get("detail-type")
    return (sources is None or "aws.ec2" in sources) and (kinds is None or INTERRUPTION in kinds)


def _admits_https(rule: Egress) -> bool:
    if rule.protocol == "-1":
        return True
    if rule.protocol not in ("tcp", "6") or rule.first_port is None or rule.last_port is None:
        return False
    return rule.first_port <= _HTTPS <= rule.last_port

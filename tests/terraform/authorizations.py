"""What AWS authorizes for each request that the lab's EC2 gets: actions, resources and condition keys.

From the Service Authorization Reference of Amazon EC2, SQS, IAM, Service Quotas and the Price List, and the EC2
User Guide ("supported-iam-actions-tagging").
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lab.ec2.launch_data import requested_tags
from lab.ec2.query import Tree
from lab.ec2.service import LabEc2
from tests.terraform.policy_evaluation import Authorization

ON_ANYTHING = ("Describe", "List", "Get")
OWNED = {
    "DeleteLaunchTemplate": ("launch-template", "LaunchTemplateId"),
    "DeleteVolume": ("volume", "VolumeId"),
    "GetConsoleOutput": ("instance", "InstanceId"),
    "TerminateInstances": ("instance", "InstanceId"),
}
"""The kind of resource of each operation that names what exists already, and the parameter with its ID."""

QUEUE_ACTIONS = {"ReceiveMessage": "sqs:ReceiveMessage", "DeleteMessageBatch": "sqs:DeleteMessage"}


class Recording:
    """The authorizations of all requests so far. `roles` has the ARN of the role by instance profile."""

    def __init__(self, ec2: LabEc2, roles: Mapping[str, str]) -> None:
        self._ec2 = ec2
        self._roles = roles
        self._arn = f"arn:aws:ec2:{ec2.region}:{ec2.account}:"
        # By their text, because most requests are alike.
        self.asked: dict[str, Authorization] = {}

    def __call__(self, service: str, operation: str, parameters: Mapping[str, Any]) -> None:
        """Record one request, with the tags that its resources have now."""
        if service == "ec2":
            found = self._ec2_request(operation, Tree(parameters))
        elif service == "sqs":
            queue = str(parameters["QueueUrl"]).rpartition("/")[2]
            arn = f"arn:aws:sqs:{self._ec2.region}:{self._ec2.account}:{queue}"
            found = iter([Authorization(QUEUE_ACTIONS[operation], arn)])
        else:
            # The names that requests are signed for are those of IAM's actions.
            found = iter([Authorization(f"{service}:{operation}", "*")])
        for one in found:
            self.asked[str(one)] = one

    def _ec2_request(self, operation: str, said: Tree) -> Iterator[Authorization]:
        if operation in OWNED:
            kind, name = OWNED[operation]
            named = said[name]
            for one in named if isinstance(named, list) else [named]:
                yield self._one(
                    operation, f"{kind}/{one}", "aws:ResourceTag", self._tags(kind, one)
                )
        elif operation.startswith(ON_ANYTHING):
            yield Authorization(f"ec2:{operation}", "*")
        elif operation == "CreateLaunchTemplate":
            yield from self._made(operation, said, ["launch-template"], [operation])
        elif operation == "CreateFleet":
            yield from self._fleet(said)
        else:
            raise ValueError(f"what does AWS authorize for {operation}?")

    def _made(
        self, operation: str, said: Tree, kinds: Sequence[str], actions: Sequence[str]
    ) -> Iterator[Authorization]:
        """Yield what creating and tagging resources of these kinds needs."""
        for kind in kinds:
            tags = requested_tags(said, kind)
            for action in actions:
                yield self._one(action, f"{kind}/*", "aws:RequestTag", tags)
            if tags:
                context = {"ec2:CreateAction": operation}
                yield self._one("CreateTags", f"{kind}/*", "aws:RequestTag", tags, context)

    def _fleet(self, said: Tree) -> Iterator[Authorization]:
        """Yield what an instant fleet needs: EC2 checks CreateFleet and RunInstances for each resource."""
        both = ["CreateFleet", "RunInstances"]
        yield from self._made("CreateFleet", said, ["fleet"], ["CreateFleet"])
        yield from self._made("CreateFleet", said, ["instance", "volume"], both)
        used = {"spot-instances-request/*"}
        for config in said.structures("LaunchTemplateConfigs"):
            wanted = config.structure("LaunchTemplateSpecification")
            template = self._ec2.templates.find(wanted)
            tags = self._ec2.templates.tags_of(template.id)
            for action in both:
                yield self._one(action, f"launch-template/{template.id}", "aws:ResourceTag", tags)
            data = template.data
            subnets = {f"subnet/{one.text('SubnetId')}" for one in config.structures("Overrides")}
            used |= subnets
            for subnet in sorted(subnets):
                where = {"ec2:Subnet": self._arn + subnet}
                interface = self._arn + "network-interface/*"
                yield from (Authorization(f"ec2:{action}", interface, where) for action in both)
            groups = {*data.security_groups, *(g for i in data.interfaces for g in i.groups)}
            used |= {f"security-group/{one}" for one in groups}
            for image in filter(None, [self._ec2.images.find(data.image)]):
                yield from self._public(both, f"image/{image.id}")
                yield from self._public(both, f"snapshot/{image.snapshot_id}")
            if data.instance_profile:
                role = self._roles[data.instance_profile]
                context = {"iam:PassedToService": "ec2.amazonaws.com"}
                yield Authorization("iam:PassRole", role, context)
        for action in both:
            yield from (Authorization(f"ec2:{action}", self._arn + one) for one in sorted(used))

    def _public(self, actions: Sequence[str], resource: str) -> Iterator[Authorization]:
        """Yield authorizations for a resource whose ARN has no account."""
        arn = f"arn:aws:ec2:{self._ec2.region}::{resource}"
        yield from (Authorization(f"ec2:{action}", arn) for action in actions)

    def _tags(self, kind: str, name: str) -> Mapping[str, str]:
        if kind == "launch-template":
            return self._ec2.templates.tags_of(name)
        by_id = {one.id: one.tags for one in self._ec2.instances}
        by_id |= {one.volume_id: one.specification.volume_tags for one in self._ec2.instances}
        return by_id[name]

    def _one(
        self,
        action: str,
        resource: str,
        key: str,
        tags: Mapping[str, str],
        more: Mapping[str, str] | None = None,
    ) -> Authorization:
        # Only the fleet's tag, so that alike requests are the same text.
        kept = {f"{key}/{name}": text for name, text in tags.items() if name == "autoscaler:fleet"}
        return Authorization(f"ec2:{action}", self._arn + resource, kept | dict(more or {}))


def policies_of(client: Any, role: str) -> list[dict[str, Any]]:
    """Return every policy of a role, from IAM's API."""
    found = [
        client.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        for name in client.list_role_policies(RoleName=role)["PolicyNames"]
    ]
    for one in client.list_attached_role_policies(RoleName=role)["AttachedPolicies"]:
        version = client.get_policy(PolicyArn=one["PolicyArn"])["Policy"]["DefaultVersionId"]
        answer = client.get_policy_version(PolicyArn=one["PolicyArn"], VersionId=version)
        document = answer["PolicyVersion"]["Document"]
        found.append(json.loads(document) if isinstance(document, str) else document)
    return found

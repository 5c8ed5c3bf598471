"""What AWS authorizes for each request of Packer: actions, resources and condition keys.

From the Service Authorization Reference of Amazon EC2.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lab.ec2.launch_data import requested_tags
from lab.ec2.query import Tree
from lab.laboratory import Laboratory
from tests.terraform.account import REGION
from tests.terraform.policy_evaluation import Authorization

ACCOUNT = "123456789012"
TEMPLATE = Path(__file__).parents[2] / "ami" / "linux" / "linux.pkr.hcl"
IN_LAUNCH = {"ec2:CreateAction": "RunInstances"}


def ec2(action: str, resource: str, **context: str | tuple[str, ...]) -> Authorization:
    own = "" if resource.startswith(("image", "snapshot")) else ACCOUNT
    return Authorization(f"ec2:{action}", f"arn:aws:ec2:{REGION}:{own}:{resource}", context)


def tagged(resource: str, *keys: str, action: str = "CreateTags", **context: str) -> Authorization:
    return ec2(action, resource, **{"aws:TagKeys": keys}, **context)


class Builds:
    """Records what AWS authorizes for each request of an image build."""

    def __init__(self, lab: Laboratory) -> None:
        self._lab = lab
        self.asked: list[Authorization] = []

    def __call__(self, service: str, operation: str, parameters: Mapping[str, Any]) -> None:
        """Record one request, with the tags that its machine has now."""
        assert service == "ec2"
        self.asked += self._authorizations(operation, Tree(parameters))

    def _authorizations(self, operation: str, said: Tree) -> Iterator[Authorization]:
        if operation.startswith("Describe"):
            yield Authorization(f"ec2:{operation}", "*")
        elif operation == "RunInstances":
            yield from self._launched(said)
        elif operation in ("StopInstances", "TerminateInstances"):
            for one in said.texts("InstanceId"):
                yield ec2(operation, f"instance/{one}", **self._tags(one))
        elif operation == "CreateImage":
            instance = said.text("InstanceId")
            yield ec2(operation, f"instance/{instance}", **self._tags(instance))
            yield from (ec2(operation, f"{kind}/*") for kind in ("image", "snapshot"))
        elif operation == "CreateTags":
            keys = [one.text("Key") for one in said.structures("Tag")]
            for one in said.texts("ResourceId"):
                kind = {"ami": "image", "snap": "snapshot"}[one.partition("-")[0]]
                yield tagged(f"{kind}/{one}", *keys)
        elif operation.endswith("KeyPair"):
            yield ec2(operation, f"key-pair/{said.text('KeyName')}")
        else:
            yield ec2(operation, f"security-group/{said.text('GroupId', '*')}")

    def _launched(self, said: Tree) -> Iterator[Authorization]:
        used = [f"subnet/{said.text('SubnetId')}", f"key-pair/{said.text('KeyName')}"]
        used += [f"security-group/{one}" for one in said.texts("SecurityGroupId")]
        used += ["network-interface/*", f"image/{said.text('ImageId')}", "snapshot/*"]
        yield from (ec2("RunInstances", one) for one in used)
        for kind in ("instance", "volume"):
            tags = requested_tags(said, kind)
            context = {f"aws:RequestTag/{key}": value for key, value in tags.items()}
            yield ec2("RunInstances", f"{kind}/*", **context)
            yield tagged(f"{kind}/*", *tags, **context, **IN_LAUNCH)

    def _tags(self, instance: str) -> dict[str, str]:
        (found,) = [one for one in self._lab.ec2.instances if one.id == instance]
        return {f"aws:ResourceTag/{key}": value for key, value in found.tags.items()}


def write_template(folder: Path) -> None:
    """Write the recipes' template without what runs on the build machine."""
    source, build, _ = TEMPLATE.read_text().partition("\nbuild {")
    assert build
    assert source.count('= "ssh"') == 1
    source = source.replace('= "ssh"', '= "none"')
    (folder / "build.pkr.hcl").write_text(
        f'{source}\nbuild {{\n  sources = ["amazon-ebs.linux"]\n}}\n'
    )

"""Checks the keys of a SKU that only EC2 has. Reads fleet.yaml as written, like `contradictions`."""

import re
from collections.abc import Iterator, Sequence

from autoscaler.config.checks import text
from autoscaler.config.document import Document, Node
from autoscaler.config.problems import KeyPath, Problem
from autoscaler.config.provider_kind import options_of
from autoscaler.config.shapes import Gibibytes, KmsKey
from autoscaler.config.sku_settings import Volume
from autoscaler.config.tags import MAX_TAGS, Tags
from autoscaler.config.values import valid
from autoscaler.model.catalogue import CapacityType
from autoscaler.providers.ec2.configuration import CapacityReservation
from autoscaler.providers.ec2.instance_types import ORDINARY_FIRST_CARD, efa_problem
from autoscaler.providers.ec2.launching.disks import ratio_problems
from autoscaler.providers.ec2.settings import VolumeOptions

_KEY_ARN = re.compile("arn:[a-z-]+:kms:([a-z0-9-]+):")


def sku_problems(document: Document, kind: str) -> Iterator[Problem]:
    """Return the contradictions in the SKUs' keys that only EC2 has. `kind` is EC2's key."""
    sections: dict[str, list[Node]] = {}
    for name, sku, index, option in options_of(document, kind):
        section = document.root.get("providers", text(option, "provider") or "", kind)
        sections.setdefault(name, []).extend([section] if section is not None else ())
        yield from _efa(document, ("skus", name, "on", index), sku, option, section)
        yield from _reservation(document, ("skus", name, "on", index), sku, option)
    skus = document.root.child("skus")
    for name, sku in skus.entries() if skus else ():
        if name in sections:
            yield from _volume(document, name, sku, sections[name])
            yield from _tags(document, name, sku, sections[name])
            continue
        for key in ("boot_script_file", "volume", "tags"):
            if sku.child(key) is not None and _known_providers(document, sku):
                what = "has no effect: no launch option is on EC2"
                yield document.problem(("skus", name, key), what, "remove it")


def _known_providers(document: Document, sku: Node) -> bool:
    """Return whether the file has the providers of all launch options."""
    options = sku.child("on")
    return all(
        document.root.get("providers", text(option, "provider") or "") is not None
        for _, option in (options.items() if options else ())
    )


def _volume(
    document: Document, name: str, sku: Node, sections: Sequence[Node]
) -> Iterator[Problem]:
    volume = sku.child("volume") or Node(1)
    # Only these two, so that an error in another key does not hide theirs.
    pair = {key: node for key, node in volume.entries() if key in ("iops", "throughput")}
    found = valid(Node(1, pair), Volume)
    if found is not None:
        options = VolumeOptions(found.iops, found.throughput)
        for key, what, fix in ratio_problems(options, valid(sku, Gibibytes, "disk_gb")):
            yield document.problem(("skus", name, "volume", key), what, fix)
    arn = _KEY_ARN.match(valid(volume, KmsKey, "kms_key") or "")
    for region in sorted({text(section, "region") or "" for section in sections} - {""}):
        if arn is not None and arn[1] != region:
            what = f"is a key in {arn[1]}, and a launch option is in {region}"
            fix = f"write the ARN of a key in {region}, or alias/NAME if both regions have one"
            yield document.problem(("skus", name, "volume", "kms_key"), what, fix)


def _tags(document: Document, name: str, sku: Node, sections: Sequence[Node]) -> Iterator[Problem]:
    own = valid(sku, Tags, "tags") or {}
    count = (
        max(len({**(valid(one, Tags, "tags") or {}), **own}) for one in sections) if sections else 0
    )
    if own and count > MAX_TAGS:
        what = f"makes {count} tags with those of the provider: EC2 allows 50, and 5 are the controller's"
        yield document.problem(("skus", name, "tags"), what, f"keep {MAX_TAGS} in both together")


def _block(document: Document, path: KeyPath, sku: Node, option: Node) -> Iterator[Problem]:
    capacity = option.child("capacity")
    kinds = [node.value for _, node in capacity.items()] if capacity else []
    if CapacityType.CAPACITY_BLOCK not in kinds:
        return
    at = (*path, "capacity")
    if option.child("capacity_reservation") is None:
        what = "capacity-block needs a capacity_reservation"
        yield document.problem(at, what, "add capacity_reservation with the id of the block")
    if len(kinds) > 1:
        what = "capacity-block is not combined with other capacity types"
        fix = "write capacity: [capacity-block], and a launch option of its own for the others"
        yield document.problem(at, what, fix)
    if text(sku, "os") == "windows":
        # EC2 User Guide, "Capacity Blocks for ML": supported platforms.
        what = "AWS sells no capacity blocks for Windows"
        yield document.problem(at, what, "name another capacity type")


def _reservation(document: Document, path: KeyPath, sku: Node, option: Node) -> Iterator[Problem]:
    yield from _block(document, path, sku, option)
    reservation = valid(option, CapacityReservation, "capacity_reservation")
    if reservation is None:
        return
    capacity, types = option.child("capacity"), option.child("instance_types")
    for index, node in capacity.items() if capacity else ():
        if node.value == CapacityType.SPOT:
            what = "a capacity reservation has no spot capacity"
            fix = "write capacity: [on-demand], or a launch option of its own for spot"
            yield document.problem((*path, "capacity", index), what, fix)
    count = len(tuple(types.items())) if types else 0
    if count > 1:
        what = f"{reservation} is of one instance type, and {count} are named"
        fix = "name its type, and write a launch option of its own for each other type"
        yield document.problem((*path, "instance_types"), what, fix)


def _efa(
    document: Document, path: KeyPath, sku: Node, option: Node, section: Node | None
) -> Iterator[Problem]:
    count = valid(option, int, "efa_interfaces") or 0
    types = option.child("instance_types")
    for index, node in types.items() if types and count > 0 else ():
        problem = efa_problem(node.value, count) if isinstance(node.value, str) else None
        if problem is not None:
            yield document.problem((*path, "instance_types", index), *problem)
    if count > 0 and text(sku, "os") == "windows":
        # EC2 User Guide, "Elastic Fabric Adapter": on Windows it is an ordinary network adapter.
        what = "has no effect on Windows"
        yield document.problem((*path, "efa_interfaces"), what, "remove it")
    named = {str(node.value) for _, node in types.items()} if types and count > 0 else set()
    ordinary = named & ORDINARY_FIRST_CARD
    if ordinary and named != ordinary:
        what = f"{min(ordinary)} has no EFA on network card 0, and the other types need one there"
        fix = "give it a launch option of its own"
        yield document.problem((*path, "instance_types"), what, fix)
    if (count > 1 or ordinary) and valid(section, bool, "public_ip"):
        what = "a machine with several interfaces gets no public address, and public_ip is true"
        fix = "remove efa_interfaces" if ordinary else "write efa_interfaces: 1"
        yield document.problem((*path, "efa_interfaces"), what, f"{fix}, or remove public_ip")

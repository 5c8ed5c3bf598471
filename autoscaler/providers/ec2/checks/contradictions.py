"""Checks the combinations of values in fleet.yaml that concern EC2."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from autoscaler.config.configuration import Configuration, run_checks
from autoscaler.config.problems import Problem, show
from autoscaler.config.provider_kind import OptionOf, options_of, sections_of
from autoscaler.config.settings.sections import other_name
from autoscaler.config.settings.sku import SkuSettings, StockImage
from autoscaler.model.catalogue import Architecture, CapacityType, OperatingSystem
from autoscaler.providers.ec2.configuration import (
    KEY,
    Ec2OptionKeys,
    Ec2Section,
    Ec2SkuKeys,
)
from autoscaler.providers.ec2.instance_types import ORDINARY_FIRST_CARD, efa_problem
from autoscaler.providers.ec2.launching.disks import ratio_problems
from autoscaler.providers.ec2.shapes import MAX_TAGS

_SQS_REGION = re.compile(r"(?:^|\.)sqs(?:-fips)?\.([a-z]{2,4}(?:-[a-z]+)+-[0-9]{1,2})\.")
_KEY_ARN = re.compile("arn:[a-z-]+:kms:([a-z0-9-]+):")

Ec2Option = OptionOf[Ec2Section, Ec2OptionKeys]


def check(configuration: Configuration) -> Iterator[Problem]:
    """Return the contradictions between keys, and warnings about interruption queues."""
    yield from _regions(configuration)
    for name, ec2 in sections_of(configuration, Ec2Section):
        yield from run_checks((_queue,), configuration, name, ec2)
    of_option = (
        *(_block, _block_alone, _block_on_windows, _reserved_spot, _reserved_types),
        *(_efa_of_types, _efa_on_windows, _efa_cards, _efa_addresses),
    )
    sections: dict[str, list[Ec2Section]] = {}
    for one in options_of(configuration, Ec2Section, Ec2OptionKeys):
        sections.setdefault(one.name, []).append(one.section)
        yield from run_checks(of_option, configuration, one)
    for name, sku in configuration.skus():
        if name in sections:
            yield from run_checks((_windows, _image, _reruns), configuration, name, sku)
        if not isinstance(sku, Ec2SkuKeys):
            continue
        if name in sections:
            of_keys = (_disk_performance, _key_region, _tags)
            yield from run_checks(of_keys, configuration, name, sku, sections[name])
        else:
            yield from run_checks((_without_effect,), configuration, name, sku)


def _queue(configuration: Configuration, name: str, ec2: Ec2Section) -> Iterator[Problem]:
    """Warn of a queue in another region."""
    queue = ec2.interruption_queue
    place = _SQS_REGION.search(urlsplit(queue).hostname or "") if queue is not None else None
    if place is not None and place[1] != ec2.region:
        path = ("providers", name, KEY, "interruption_queue")
        what = f"is a queue in {place[1]}, but the provider is in {ec2.region}"
        yield configuration.warning(path, what, "use a queue in the provider's region")


def _reruns(configuration: Configuration, name: str, sku: SkuSettings) -> Iterator[Problem]:
    """Warn of reruns at a provider without a queue."""
    sections = dict(sections_of(configuration, Ec2Section))
    without_queue = [
        one.provider
        for one in sku.launch_options
        if one.provider in sections and sections[one.provider].interruption_queue is None
    ]
    if sku.rerun_interrupted and without_queue:
        what = f"needs interruption notices, and {show(without_queue[0])} has no interruption_queue"
        path = ("skus", name, "rerun_interrupted")
        yield configuration.warning(path, what, "add one there, or remove it")


def _regions(configuration: Configuration) -> Iterator[Problem]:
    """Check that each region has one provider.

    All providers use the same AWS credentials, so two in one region would list each other's machines.
    """
    first: dict[str, str] = {}
    for name, ec2 in sections_of(configuration, Ec2Section):
        region = getattr(ec2, "region", None)
        if region in first:
            line = configuration.document.line(("providers", first[region]))
            what = f"{region} is already the region of provider {show(first[region])} (line {line})"
            fix = f"list the subnets of both under {show(first[region])}: a region can have one provider only"
            yield configuration.error(("providers", name, KEY, "region"), what, fix)
        elif region is not None:
            first[region] = name


def _windows(configuration: Configuration, name: str, sku: SkuSettings) -> Iterator[Problem]:
    if sku.os is OperatingSystem.WINDOWS and sku.arch is Architecture.ARM64:
        what = "EC2 has no Windows on arm64"
        yield configuration.error(("skus", name, "arch"), what, "write x64, or os: linux")


def _image(configuration: Configuration, name: str, sku: SkuSettings) -> Iterator[Problem]:
    written = configuration.document.value(("skus", name))
    others = (other_name(type(sku), key) for key in written)
    if any(other is not None and other.means == "image" for other in others):
        return  # the unknown key is reported
    if sku.image is None:
        what = "is missing, and a launch option is on EC2"
        fix = (
            f"add image: {{stock: {StockImage.UBUNTU_24_04}}}, or the name of an image of your own"
        )
        yield configuration.error(("skus", name, "image"), what, fix)


def _without_effect(configuration: Configuration, name: str, sku: Ec2SkuKeys) -> Iterator[Problem]:
    providers = dict(configuration.providers())
    if not all(one.provider in providers for one in sku.launch_options):
        return  # the unknown providers are reported
    if any(providers[one.provider].kind == KEY for one in sku.launch_options):
        return
    for key in ("boot_script_file", "volume", "tags"):
        if key in sku.model_fields_set:
            what = "has no effect: no launch option is on EC2"
            yield configuration.error(("skus", name, key), what, "remove it")


def _disk_performance(
    configuration: Configuration,
    name: str,
    sku: Ec2SkuKeys,
    sections: list[Ec2Section],  # noqa: ARG001
) -> Iterator[Problem]:
    if sku.volume is None:
        return
    for key, what, fix in ratio_problems(sku.volume, sku.root_disk_gb):
        yield configuration.error(("skus", name, "volume", key), what, fix)


def _key_region(
    configuration: Configuration, name: str, sku: Ec2SkuKeys, sections: list[Ec2Section]
) -> Iterator[Problem]:
    key = sku.volume.kms_key if sku.volume is not None else None
    arn = _KEY_ARN.match(key or "")
    for region in sorted({section.region for section in sections}):
        if arn is not None and arn[1] != region:
            what = f"is a key in {arn[1]}, and a launch option is in {region}"
            fix = f"write the ARN of a key in {region}, or alias/NAME if both regions have one"
            yield configuration.error(("skus", name, "volume", "kms_key"), what, fix)


def _tags(
    configuration: Configuration, name: str, sku: Ec2SkuKeys, sections: list[Ec2Section]
) -> Iterator[Problem]:
    count = max(len({**section.tags, **sku.tags}) for section in sections)
    if sku.tags and count > MAX_TAGS:
        what = f"makes {count} tags with those of the provider: EC2 allows 50, and 5 are the controller's"
        yield configuration.error(("skus", name, "tags"), what, f"keep {MAX_TAGS} in both together")


def _block(configuration: Configuration, one: Ec2Option) -> Iterator[Problem]:
    if _is_block(one) and one.option.capacity_reservation is None:
        what = "capacity-block needs a capacity_reservation"
        fix = "add capacity_reservation with the id of the block"
        yield configuration.error((*one.path, "capacity"), what, fix)


def _block_alone(configuration: Configuration, one: Ec2Option) -> Iterator[Problem]:
    if _is_block(one) and len(one.option.capacity) > 1:
        what = "capacity-block is not combined with other capacity types"
        fix = "write capacity: [capacity-block], and a launch option of its own for the others"
        yield configuration.error((*one.path, "capacity"), what, fix)


def _block_on_windows(configuration: Configuration, one: Ec2Option) -> Iterator[Problem]:
    if _is_block(one) and one.sku.os is OperatingSystem.WINDOWS:
        # EC2 User Guide, "Capacity Blocks for ML": supported platforms.
        what = "AWS sells no capacity blocks for Windows"
        yield configuration.error((*one.path, "capacity"), what, "name another capacity type")


def _is_block(one: Ec2Option) -> bool:
    return CapacityType.CAPACITY_BLOCK in one.option.capacity


def _reserved_spot(configuration: Configuration, one: Ec2Option) -> Iterator[Problem]:
    if one.option.capacity_reservation is None:
        return
    for index, capacity in enumerate(one.option.capacity):
        if capacity is CapacityType.SPOT:
            what = "a capacity reservation has no spot capacity"
            fix = "write capacity: [on-demand], or a launch option of its own for spot"
            yield configuration.error((*one.path, "capacity", index), what, fix)


def _reserved_types(configuration: Configuration, one: Ec2Option) -> Iterator[Problem]:
    reservation, count = one.option.capacity_reservation, len(one.option.instance_types or ())
    if reservation is not None and count > 1:
        what = f"{reservation} is of one instance type, and {count} are named"
        fix = "name its type, and write a launch option of its own for each other type"
        yield configuration.error((*one.path, "instance_types"), what, fix)


def _efa_of_types(configuration: Configuration, one: Ec2Option) -> Iterator[Problem]:
    count = one.option.efa_interfaces
    for index, name in enumerate(one.option.instance_types or ()):
        problem = efa_problem(name, count) if count > 0 else None
        if problem is not None:
            yield configuration.error((*one.path, "instance_types", index), *problem)


def _efa_on_windows(configuration: Configuration, one: Ec2Option) -> Iterator[Problem]:
    if one.option.efa_interfaces > 0 and one.sku.os is OperatingSystem.WINDOWS:
        # EC2 User Guide, "Elastic Fabric Adapter": on Windows it is an ordinary network adapter.
        what = "has no effect on Windows"
        yield configuration.error((*one.path, "efa_interfaces"), what, "remove it")


def _efa_cards(configuration: Configuration, one: Ec2Option) -> Iterator[Problem]:
    named = set(one.option.instance_types or ()) if one.option.efa_interfaces > 0 else set()
    ordinary = named & ORDINARY_FIRST_CARD
    if ordinary and named != ordinary:
        what = f"{min(ordinary)} has no EFA on network card 0, and the other types need one there"
        fix = "give it a launch option of its own"
        yield configuration.error((*one.path, "instance_types"), what, fix)


def _efa_addresses(configuration: Configuration, one: Ec2Option) -> Iterator[Problem]:
    count = one.option.efa_interfaces
    ordinary = count > 0 and ORDINARY_FIRST_CARD & set(one.option.instance_types or ())
    if (count > 1 or ordinary) and one.section.public_ip:
        what = "a machine with several interfaces gets no public address, and public_ip is true"
        fix = "remove efa_interfaces" if ordinary else "write efa_interfaces: 1"
        yield configuration.error(
            (*one.path, "efa_interfaces"), what, f"{fix}, or remove public_ip"
        )

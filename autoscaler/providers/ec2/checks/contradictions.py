"""Checks the combinations of values in fleet.yaml that concern EC2."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from autoscaler.config.configuration import Configuration, run_checks
from autoscaler.config.problems import Problem, show
from autoscaler.config.provider_kind import options_of, sections_of
from autoscaler.config.settings.sku import SkuSettings
from autoscaler.model.catalogue import Architecture, OperatingSystem
from autoscaler.providers.ec2.checks.skus import check_options, check_sku_keys
from autoscaler.providers.ec2.configuration import KEY, Ec2OptionKeys, Ec2Section

_SQS_REGION = re.compile(r"(?:^|\.)sqs(?:-fips)?\.([a-z]{2,4}(?:-[a-z]+)+-[0-9]{1,2})\.")


def check(configuration: Configuration) -> Iterator[Problem]:
    """Return the contradictions between keys, and warnings about interruption queues."""
    yield from _regions(configuration)
    for name, ec2 in sections_of(configuration, Ec2Section):
        yield from run_checks((_queue,), configuration, name, ec2)
    on_ec2 = {one.name: one.sku for one in options_of(configuration, Ec2Section, Ec2OptionKeys)}
    for name, sku in on_ec2.items():
        yield from run_checks((_windows, _image, _reruns), configuration, name, sku)
    yield from check_options(configuration)
    yield from check_sku_keys(configuration)


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
    if sku.image is None:
        what = "is missing, and a launch option is on EC2"
        fix = 'add image: {name: "my-image-*", owner: self}'
        yield configuration.error(("skus", name, "image"), what, fix)

"""Checks the combinations of values in fleet.yaml that concern EC2. Reads the file as written."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from autoscaler.config.checks import text
from autoscaler.config.document import Document
from autoscaler.config.problems import Problem, show
from autoscaler.config.provider_kind import options_of, sections_of
from autoscaler.config.settings import Settings
from autoscaler.providers.ec2.checks.skus import sku_problems
from autoscaler.providers.ec2.configuration import Ec2Section

KEY = "ec2"
"""The key of an EC2 provider's section."""

_SQS_REGION = re.compile(r"(?:^|\.)sqs(?:-fips)?\.([a-z]{2,4}(?:-[a-z]+)+-[0-9]{1,2})\.")


def contradictions(document: Document) -> Iterator[Problem]:
    """Return the contradictions between keys."""
    yield from _regions(document)
    yield from _platforms(document)
    yield from sku_problems(document, KEY)


def warnings(document: Document, settings: Settings) -> Iterator[Problem]:
    """Return warnings about interruption queues: one in another region, or none for a SKU with reruns."""
    # Not `section`: a provider with an error may have none.
    found = {name: getattr(one, KEY, None) for name, one in settings.providers.items()}
    sections = {name: one for name, one in found.items() if isinstance(one, Ec2Section)}
    for name, ec2 in sections.items():
        queue = ec2.interruption_queue
        place = _SQS_REGION.search(urlsplit(queue).hostname or "") if queue is not None else None
        if place is not None and place[1] != ec2.region:
            path = ("providers", name, KEY, "interruption_queue")
            what = f"is a queue in {place[1]}, but the provider is in {ec2.region}"
            fix = "use a queue in the provider's region"
            yield document.problem(path, what, fix, warning=True)
    without_queue = {name for name, ec2 in sections.items() if ec2.interruption_queue is None}
    yield from _reruns_without_notices(document, settings, without_queue)


def _reruns_without_notices(
    document: Document, settings: Settings, without_queue: set[str]
) -> Iterator[Problem]:
    for name, sku in settings.skus.items():
        providers = [
            option.provider for option in sku.launch_options if option.provider in without_queue
        ]
        if sku.rerun_interrupted and providers:
            what = f"needs interruption notices, and {show(providers[0])} has no interruption_queue"
            path = ("skus", name, "rerun_interrupted")
            yield document.problem(path, what, "add one there, or remove it", warning=True)


def _regions(document: Document) -> Iterator[Problem]:
    """Check that each region has one provider.

    All providers use the same AWS credentials, so two in one region would list each other's machines.
    """
    places: dict[str, tuple[str, int]] = {}
    providers = document.root.child("providers")
    for name, section in sections_of(document, KEY):
        region = text(section, "region")
        if region is None:
            continue
        if region in places:
            first, line = places[region]
            what = f"{region} is already the region of provider {show(first)} (line {line})"
            fix = (
                f"list the subnets of both under {show(first)}: a region can have one provider only"
            )
            yield document.problem(("providers", name, KEY, "region"), what, fix)
        provider = providers.child(name) if providers is not None else None
        places.setdefault(region, (name, provider.line if provider is not None else section.line))


def _platforms(document: Document) -> Iterator[Problem]:
    for name, sku, _, _ in options_of(document, KEY):
        if text(sku, "os") == "windows" and text(sku, "arch") == "arm64":
            what = "EC2 has no Windows on arm64"
            yield document.problem(("skus", name, "arch"), what, "write x64, or os: linux")
        if sku.child("image") is None:
            what = "is missing, and a launch option is on EC2"
            fix = 'add image: {name: "my-image-*", owner: self}'
            yield document.problem(("skus", name, "image"), what, fix)

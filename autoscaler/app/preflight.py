"""What a fleet.yaml that reads well asks for and this program cannot do: `check` and `serve` tell it.

Decides no rule of its own: it asks the rooms that know EC2's types, its certificates and the text
that machines boot with. It reaches nobody over the network.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from autoscaler import config
from autoscaler.app.translation import offering_problems
from autoscaler.config.certificates import tls_problems
from autoscaler.config.document import Document
from autoscaler.config.problems import nearest, show
from autoscaler.config.settings import Ec2Settings
from autoscaler.providers.ec2.identity import (
    load_certificates,
    pinned_certificates,
    pinned_regions,
)
from autoscaler.providers.ec2.instance_types import (
    InstanceTypeError,
    instance_type,
    instance_types,
)
from autoscaler.providers.ec2.user_data import render_user_data

_TYPE = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+")
_ANY_SHA256 = "0" * 64


def load_for_service(path: Path, *, files: bool = True) -> config.Configuration:
    """A configuration that can be served. Raises ConfigurationError, all errors at once."""
    configuration = config.load(path, files=files, also=_unknown_types)
    if problems := preflight(configuration, files=files):
        raise config.ConfigurationError(problems)
    return configuration


def preflight(
    configuration: config.Configuration, *, files: bool = True
) -> tuple[config.Problem, ...]:
    """Every problem, by line; `files` says whether the files that it names are looked into."""
    problems = [*offering_problems(configuration), *_store(configuration), *_regions(configuration)]
    if files:
        for read in (config.read_private_keys, config.read_webhook_secrets):
            try:
                read(configuration)
            except config.ConfigurationError as error:
                problems += error.problems
        problems += tls_problems(configuration)
        problems += _identity_files(configuration)
        problems += _user_data(configuration)
    return tuple(sorted(problems))


def _unknown_types(document: Document) -> Iterator[config.Problem]:
    skus = document.root.child("skus")
    for name, sku in skus.entries() if skus else ():
        ladder = sku.child("on")
        for index, rung in ladder.items() if ladder else ():
            types = rung.child("instance_types")
            for position, node in types.items() if types else ():
                if not isinstance(node.value, str) or not _TYPE.fullmatch(node.value):
                    continue  # as `load` says
                try:
                    instance_type(node.value)
                except InstanceTypeError as error:
                    path = ("skus", name, "on", index, "instance_types", position)
                    yield document.problem(path, error.what, _near_type(node.value, error.fix))


def _near_type(name: str, fix: str) -> str:
    meant = nearest(name, instance_types())
    return f"did you mean {meant}?" if meant is not None else fix


def _store(configuration: config.Configuration) -> Iterator[config.Problem]:
    if configuration.sqlite_file() is None:
        what = "PostgreSQL is not built yet"
        yield configuration.document.problem(("store",), what, "write sqlite:///FILE")


def _regions(configuration: config.Configuration) -> Iterator[config.Problem]:
    for name, ec2 in _ec2(configuration):
        if ec2.identity_certificates or pinned_certificates(ec2.region):
            continue
        meant = nearest(ec2.region, pinned_regions())
        fix = "name AWS's certificate for it in identity_certificates"
        if meant is not None:
            fix = f"did you mean {meant}? If not, {fix}"
        what = f"no machine in {show(ec2.region)} could prove who it is: no certificate is known"
        path = ("providers", name, "ec2", "region")
        yield configuration.document.problem(path, what, fix)


def _identity_files(configuration: config.Configuration) -> Iterator[config.Problem]:
    for name, ec2 in _ec2(configuration):
        for index, file in enumerate(ec2.identity_certificates):
            path = ("providers", name, "ec2", "identity_certificates", index)
            fix = "name a PEM file with AWS's RSA certificate for the region"
            try:
                load_certificates(configuration.file(file).read_bytes(), file)
            except ValueError as error:
                yield configuration.document.problem(path, str(error), fix)
            except OSError as error:
                what = f"{show(file)} cannot be read: {error.strerror}"
                yield configuration.document.problem(path, what, fix)


def _user_data(configuration: config.Configuration) -> Iterator[config.Problem]:
    """A CA file that does not fit into what EC2 hands to a booting machine."""
    server = configuration.settings.server
    if server.tls is None or server.tls.ca_file is None:
        return
    try:
        ca_pem = configuration.file(server.tls.ca_file).read_text()
    except (OSError, ValueError):
        return  # as `tls_problems` says
    if "PRIVATE KEY" in ca_pem:
        return
    try:
        for name, _ in _ec2(configuration):
            for os in {sku.os for sku in configuration.settings.skus.values()}:
                render_user_data(os, server.public_url, name, _ANY_SHA256, ca_pem)
    except ValueError as error:
        path = ("server", "tls", "ca_file")
        what = f"{show(server.tls.ca_file)} cannot go to machines: {error}"
        fix = "leave in it only the authority that signed the server's certificate"
        yield configuration.document.problem(path, what, fix)


def _ec2(configuration: config.Configuration) -> Iterator[tuple[str, Ec2Settings]]:
    for name, provider in configuration.settings.providers.items():
        if provider.ec2 is not None:
            yield name, provider.ec2

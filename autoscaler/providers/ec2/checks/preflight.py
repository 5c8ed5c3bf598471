"""Checks whether an EC2 provider of fleet.yaml can serve: types, certificates, user data.

Makes no network requests.
"""

from collections.abc import Iterator
from pathlib import Path

from autoscaler.config.checks.certificates import authority
from autoscaler.config.configuration import Configuration, run_checks
from autoscaler.config.files.pem import PemError, read_pem
from autoscaler.config.files.regular_files import open_regular
from autoscaler.config.problems import Problem, nearest, show
from autoscaler.config.provider_kind import OptionOf, options_of, sections_of
from autoscaler.model.catalogue import OperatingSystem
from autoscaler.providers.ec2.checks.offerings import offering_problems
from autoscaler.providers.ec2.configuration import (
    KEY,
    Ec2OptionKeys,
    Ec2Section,
    Ec2SkuKeys,
)
from autoscaler.providers.ec2.identity.documents import load_certificates, pinned_regions
from autoscaler.providers.ec2.user_data import (
    MAX_BYTES,
    boot_script_problem,
    boot_script_room,
    render_user_data,
)

MOST_READ = 1 << 20
_ANY_SHA256 = "0" * 64


def preflight(configuration: Configuration, *, files: bool) -> Iterator[Problem]:
    """Return every problem. `files`: also check the files that the sections name."""
    yield from offering_problems(configuration)
    for name, ec2 in sections_of(configuration, Ec2Section):
        yield from run_checks((_region,), configuration, name, ec2)
        if files:
            yield from run_checks((_identity_files,), configuration, name, ec2)
    if not files:
        return
    yield from run_checks((_user_data,), configuration)
    first: dict[str, OptionOf[Ec2Section, Ec2OptionKeys]] = {}
    for one in options_of(configuration, Ec2Section, Ec2OptionKeys):
        first.setdefault(one.name, one)
    for one in first.values():
        yield from run_checks((_boot_script,), configuration, one)


def _region(configuration: Configuration, name: str, ec2: Ec2Section) -> Iterator[Problem]:
    known = pinned_regions()
    if ec2.region in known or ec2.identity_certificates:
        return
    meant = nearest(ec2.region, known)
    fix = "add AWS's certificate for the region to identity_certificates"
    if meant is not None:
        fix = f"did you mean {meant}? If not, {fix}"
    what = f"no certificate for identity documents of {show(ec2.region)} is known"
    yield configuration.error(("providers", name, KEY, "region"), what, fix)


def _identity_files(configuration: Configuration, name: str, ec2: Ec2Section) -> Iterator[Problem]:
    for index, written in enumerate(ec2.identity_certificates):
        path = ("providers", name, KEY, "identity_certificates", index)
        file = configuration.readable_file(written)
        if file is None:
            continue
        fix = "name a PEM file with AWS's RSA certificate for the region"
        try:
            load_certificates(read_pem(file), written)
        except PemError as error:
            yield configuration.error(path, f"{show(written)} {error.what}", fix)
        except ValueError as error:
            yield configuration.error(path, str(error), fix)


def _user_data(configuration: Configuration) -> Iterator[Problem]:
    """Check that the CA file fits into EC2's user data."""
    ca_pem = authority(configuration)
    if ca_pem is None:
        return
    systems = {getattr(sku, "os", OperatingSystem.LINUX) for _, sku in configuration.skus()}
    server = configuration.settings.server
    try:
        for name, _ in sections_of(configuration, Ec2Section):
            for os in sorted(systems):
                render_user_data(os, server.public_url, name, _ANY_SHA256, ca_pem)
    except ValueError as error:
        file = server.tls.ca_file if server.tls is not None else None
        what = f"{show(file)} cannot be part of user data: {error}"
        fix = "keep only the CA certificate that signed the server's certificate in it"
        yield configuration.error(("server", "tls", "ca_file"), what, fix)


def _boot_script(
    configuration: Configuration, one: OptionOf[Ec2Section, Ec2OptionKeys]
) -> Iterator[Problem]:
    """Check the boot script of a SKU on EC2, and that it fits into EC2's user data."""
    sku = one.sku
    assert isinstance(sku, Ec2SkuKeys)
    file = configuration.readable_file(sku.boot_script_file)
    if file is None:
        return
    path, shown = ("skus", one.name, "boot_script_file"), show(sku.boot_script_file)
    try:
        script = _read_script(file)
    except UnicodeDecodeError:
        yield configuration.error(path, f"{shown} is not UTF-8", "save it as UTF-8")
        return
    problem = boot_script_problem(sku.os, script)
    if problem is not None:
        yield configuration.error(path, f"{shown} {problem[0]}", problem[1])
        return
    url, ca_pem = configuration.settings.server.public_url, authority(configuration)
    try:
        without = render_user_data(sku.os, url, one.option.provider, _ANY_SHA256, ca_pem)
    except ValueError:
        return  # `_user_data` reports it
    room = boot_script_room(sku.os, MAX_BYTES - len(without.encode()))
    size = len(script.encode())
    if size > room:
        what = f"{shown} has {size} bytes, and the user data has room for {room}"
        yield configuration.error(path, what, "shorten it, or let it download the rest")


def _read_script(file: Path) -> str:
    """Return the text of a script, or enough of it to be too long. Raises UnicodeDecodeError."""
    with open_regular(file) as opened:
        return opened.read(MOST_READ).decode()

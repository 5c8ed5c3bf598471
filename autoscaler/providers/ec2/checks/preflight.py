"""Checks whether an EC2 provider of fleet.yaml can serve: types, certificates, user data.

Reads the file as written, so that one error hides no other, and makes no network requests.
"""

from collections.abc import Iterator
from pathlib import Path

from autoscaler.config import shapes
from autoscaler.config.certificates import authority
from autoscaler.config.document import Document, Node
from autoscaler.config.files import named_file
from autoscaler.config.pem import PemError, read_pem
from autoscaler.config.problems import KeyPath, Problem, nearest, show
from autoscaler.config.provider_kind import options_of, sections_of
from autoscaler.config.regular_files import open_regular
from autoscaler.config.values import valid
from autoscaler.model.catalogue import OperatingSystem
from autoscaler.providers.ec2.checks.contradictions import KEY
from autoscaler.providers.ec2.checks.offerings import offering_problems
from autoscaler.providers.ec2.configuration import Region
from autoscaler.providers.ec2.identity.documents import load_certificates, pinned_regions
from autoscaler.providers.ec2.launching.user_data import (
    MAX_BYTES,
    boot_script_problem,
    boot_script_room,
    render_user_data,
)

MOST_READ = 1 << 20
_ANY_SHA256 = "0" * 64


def preflight(document: Document, folder: Path, *, files: bool) -> Iterator[Problem]:
    """Return every problem. `files`: also check the files that the sections name."""
    yield from offering_problems(document)
    yield from _regions(document)
    if files:
        yield from _identity_files(document, folder)
        yield from _user_data(document, folder)
        yield from _boot_scripts(document, folder)


def _regions(document: Document) -> Iterator[Problem]:
    known = pinned_regions()
    for name, ec2 in sections_of(document, KEY):
        region = valid(ec2, Region, "region")
        own = ec2.child("identity_certificates")
        if region is None or region in known or (own is not None and own.value):
            continue
        meant = nearest(region, known)
        fix = "add AWS's certificate for the region to identity_certificates"
        if meant is not None:
            fix = f"did you mean {meant}? If not, {fix}"
        what = f"no certificate for identity documents of {show(region)} is known"
        yield document.problem(("providers", name, KEY, "region"), what, fix)


def _identity_files(document: Document, folder: Path) -> Iterator[Problem]:
    for name, ec2 in sections_of(document, KEY):
        certificates = ec2.child("identity_certificates")
        for index, node in certificates.items() if certificates else ():
            path = ("providers", name, KEY, "identity_certificates", index)
            file = named_file(document, folder, *path)
            if file is None:
                continue
            fix = "name a PEM file with AWS's RSA certificate for the region"
            try:
                load_certificates(read_pem(file), str(node.value))
            except PemError as error:
                yield document.problem(path, f"{show(node.value)} {error.what}", fix)
            except ValueError as error:
                yield document.problem(path, str(error), fix)


def _user_data(document: Document, folder: Path) -> Iterator[Problem]:
    """Check that the CA file fits into EC2's user data."""
    ca_pem = authority(document, folder)
    url = valid(document.root, shapes.PublicUrl, "server", "public_url")
    if ca_pem is None or url is None:
        return
    skus = document.root.child("skus")
    systems = {
        valid(sku, OperatingSystem, "os") or OperatingSystem.LINUX
        for _, sku in (skus.entries() if skus else ())
    }
    names = [
        name for name, _ in sections_of(document, KEY) if valid(Node(1, name), shapes.ProviderName)
    ]
    try:
        for name in names:
            for os in sorted(systems):
                render_user_data(os, url, name, _ANY_SHA256, ca_pem)
    except ValueError as error:
        path = ("server", "tls", "ca_file")
        file = valid(document.root, shapes.FilePath, *path)
        what = f"{show(file)} cannot be part of user data: {error}"
        fix = "keep only the CA certificate that signed the server's certificate in it"
        yield document.problem(path, what, fix)


def _boot_scripts(document: Document, folder: Path) -> Iterator[Problem]:
    """Check the boot scripts of SKUs on EC2, and that each fits into EC2's user data."""
    url = valid(document.root, shapes.PublicUrl, "server", "public_url")
    ca_pem = authority(document, folder)
    seen: set[KeyPath] = set()
    for name, sku, _, option in options_of(document, KEY):
        path = ("skus", name, "boot_script_file")
        file = named_file(document, folder, *path)
        if file is None or path in seen:
            continue
        seen.add(path)
        shown = show(str(valid(sku, shapes.FilePath, "boot_script_file")))
        try:
            script = _read_script(file)
        except UnicodeDecodeError:
            yield document.problem(path, f"{shown} is not UTF-8", "save it as UTF-8")
            continue
        platform = valid(sku, OperatingSystem, "os") or OperatingSystem.LINUX
        problem = boot_script_problem(platform, script)
        if problem is not None:
            yield document.problem(path, f"{shown} {problem[0]}", problem[1])
        provider = valid(option, shapes.ProviderName, "provider")
        if problem is None and url is not None and provider is not None:
            yield from _fits(document, path, shown, platform, script, (url, provider, ca_pem))


def _read_script(file: Path) -> str:
    """Return the text of a script, or enough of it to be too long. Raises UnicodeDecodeError."""
    with open_regular(file) as opened:
        return opened.read(MOST_READ).decode()


def _fits(
    document: Document,
    path: KeyPath,
    shown: str,
    platform: OperatingSystem,
    script: str,
    of: tuple[str, str, str | None],
) -> Iterator[Problem]:
    url, provider, ca_pem = of
    try:
        without = render_user_data(platform, url, provider, _ANY_SHA256, ca_pem)
    except ValueError:
        return  # `_user_data` reports it
    room = boot_script_room(platform, MAX_BYTES - len(without.encode()))
    size = len(script.encode())
    if size > room:
        what = f"{shown} has {size} bytes, and the user data has room for {room}"
        yield document.problem(path, what, "shorten it, or let it download the rest")

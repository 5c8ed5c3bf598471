"""Checks whether this program can serve a valid fleet.yaml, for `check` and `serve`.

It uses the checks of EC2's types, certificates and user data. It reads the file as written, so that one
error hides no other, and makes no network requests.
"""

from collections.abc import Iterator
from pathlib import Path

from autoscaler import config
from autoscaler.app.translation import offering_problems
from autoscaler.config import shapes
from autoscaler.config.certificates import authority, tls_problems
from autoscaler.config.credentials import secret_problems
from autoscaler.config.document import Document, Node
from autoscaler.config.files import SQLITE, named_file
from autoscaler.config.offerings import ec2_providers
from autoscaler.config.pem import PemError, read_pem
from autoscaler.config.problems import nearest, show
from autoscaler.config.values import valid
from autoscaler.model.catalogue import OperatingSystem
from autoscaler.providers.ec2.identity import load_certificates, pinned_regions
from autoscaler.providers.ec2.user_data import render_user_data

_ANY_SHA256 = "0" * 64


def load_for_service(
    path: Path, *, files: bool = True, try_store: bool = True
) -> config.Configuration:
    """Load a configuration that can be served. Raises ConfigurationError with all errors.

    `try_store`: also test that the store can be written, for callers that do not open it.
    """

    def also(document: Document) -> tuple[config.Problem, ...]:
        return preflight(document, path.parent, files=files)

    return config.load(path, files=files, try_store=try_store, also=also)


def preflight(
    document: Document, folder: Path, *, files: bool = True
) -> tuple[config.Problem, ...]:
    """Return every problem, by line. `files`: also check the files that it names.

    File names are relative to `folder`. Values of a wrong type are ignored; `load` reports them.
    """
    problems = [*offering_problems(document), *_store(document), *_regions(document)]
    if files:
        problems += secret_problems(document, folder)
        problems += tls_problems(document, folder)
        problems += _identity_files(document, folder)
        problems += _user_data(document, folder)
    return tuple(sorted(problems))


def _store(document: Document) -> Iterator[config.Problem]:
    store = valid(document.root, shapes.StoreUrl, "store")
    if store is not None and not store.startswith(SQLITE):
        yield document.problem(
            ("store",), "PostgreSQL is not implemented yet", "write sqlite:///FILE"
        )


def _regions(document: Document) -> Iterator[config.Problem]:
    known = pinned_regions()
    for name, ec2 in ec2_providers(document):
        region = valid(ec2, shapes.Region, "region")
        own = ec2.child("identity_certificates")
        if region is None or region in known or (own is not None and own.value):
            continue
        meant = nearest(region, known)
        fix = "add AWS's certificate for the region to identity_certificates"
        if meant is not None:
            fix = f"did you mean {meant}? If not, {fix}"
        what = f"no certificate for identity documents of {show(region)} is known"
        yield document.problem(("providers", name, "ec2", "region"), what, fix)


def _identity_files(document: Document, folder: Path) -> Iterator[config.Problem]:
    for name, ec2 in ec2_providers(document):
        certificates = ec2.child("identity_certificates")
        for index, node in certificates.items() if certificates else ():
            path = ("providers", name, "ec2", "identity_certificates", index)
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


def _user_data(document: Document, folder: Path) -> Iterator[config.Problem]:
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
        name for name, _ in ec2_providers(document) if valid(Node(1, name), shapes.ProviderName)
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

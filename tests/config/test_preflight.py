"""What `serve` could not use is told before it starts: certificates, regions, keys, the store."""

from collections.abc import Callable
from pathlib import Path

import pytest

from autoscaler.app import preflight
from autoscaler.config import Configuration, Problem
from tests.config.fleet_file import EXAMPLE, Folder, changed
from tests.config.keys import certificate, curve_key, pem, rsa_key


def only(configuration: Configuration) -> Problem:
    """The one problem that there is."""
    (problem,) = preflight(configuration)
    return problem


def test_the_example_can_be_served(folder: Folder) -> None:
    assert preflight(folder.load(EXAMPLE.read_text())) == ()


@pytest.mark.parametrize(
    ("name", "content", "key", "what", "fix"),
    [
        (
            "server.key",
            pem(rsa_key()),
            "key_file",
            '"server.key" is not the key of the first certificate in "server.pem"',
            "name the key that it was made with",
        ),
        (
            "server.key",
            pem(curve_key("other")),
            "key_file",
            '"server.key" is not the key of the first certificate in "server.pem"',
            "name the key that it was made with",
        ),
        (
            "server.key",
            pem(curve_key(), b"hush"),
            "key_file",
            '"server.key" holds an encrypted key',
            "without a password",
        ),
        ("server.key", "key", "key_file", "holds no private key that can be read", "as PEM"),
        ("server.pem", "none", "certificate_file", "holds no certificate", "BEGIN CERTIFICATE"),
        ("ca.pem", "none", "ca_file", '"ca.pem" holds no certificate', "BEGIN CERTIFICATE"),
        (
            "ca.pem",
            certificate(curve_key()) + pem(curve_key()),
            "ca_file",
            "holds a private key, and would go to machines",
            "leave only certificates",
        ),
        (
            "ca.pem",
            certificate(rsa_key()) * 20,
            "ca_file",
            '"ca.pem" cannot go to machines: user data of',
            "leave in it only the authority",
        ),
    ],
    ids=[
        "other kind",
        "mismatch",
        "encrypted",
        "no key",
        "no certificate",
        "no ca",
        "key in ca",
        "long ca",
    ],
)
def test_files_of_tls_that_cannot_be_used(
    folder: Folder, name: str, content: str, key: str, what: str, fix: str
) -> None:
    configuration = folder.load(EXAMPLE.read_text())
    (folder.path / name).write_text(content)
    problem = only(configuration)
    assert (problem.line, problem.key) == (11, f"server.tls.{key}")
    assert what in problem.what
    assert fix in problem.fix
    assert preflight(configuration, files=False) == ()


def test_certificate_and_key_may_stand_in_one_file(folder: Folder) -> None:
    text = EXAMPLE.read_text().replace("key_file: server.key", "key_file: server.pem")
    configuration = folder.load(text)
    (folder.path / "server.pem").write_text(certificate(rsa_key()) + pem(rsa_key()))
    assert preflight(configuration) == ()


@pytest.mark.parametrize("files", [True, False])
@pytest.mark.parametrize(
    ("region", "fix"),
    [
        ("us-esat-1", "did you mean us-east-1? If not, name AWS's certificate"),
        ("zz-nowhere-9", "name AWS's certificate for it in identity_certificates"),
    ],
)
def test_a_region_whose_machines_could_prove_nothing(
    folder: Folder, files: bool, region: str, fix: str
) -> None:
    text = changed(
        ("region: us-east-1", f"region: {region}"),
        ("[sg-0a]}", "[sg-0a], prices: {g5.xlarge: 1}}"),
    )
    (problem,) = preflight(folder.load(text), files=files)
    assert (problem.line, problem.key) == (12, "providers.east.ec2.region")
    assert f'no machine in "{region}" could prove who it is' in problem.what
    assert problem.fix.startswith(fix)


def test_a_region_of_its_own_certificate_is_served(folder: Folder) -> None:
    (folder.path / "mine.pem").write_text(certificate(rsa_key()))
    text = changed(
        ("region: us-east-1", "region: zz-nowhere-9"),
        ("[sg-0a]}", "[sg-0a], prices: {g5.xlarge: 1}, identity_certificates: [mine.pem]}"),
    )
    assert preflight(folder.load(text)) == ()


def _unreadable(file: Path) -> None:
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda file: file.write_text("none"), "mine.pem: no PEM certificates"),
        (lambda file: file.write_text(certificate(curve_key())), "mine.pem: a certificate's key"),
        (_unreadable, '"mine.pem" cannot be read: Is a directory'),
    ],
    ids=["none", "curve", "folder"],
)
def test_identity_certificates_that_cannot_be_used(
    folder: Folder, spoil: Callable[[Path], object], what: str
) -> None:
    file = folder.path / "mine.pem"
    file.write_text("")
    configuration = folder.load(
        changed(("[sg-0a]}", "[sg-0a], identity_certificates: [mine.pem]}"))
    )
    spoil(file)
    problem = only(configuration)
    assert problem.key == "providers.east.ec2.identity_certificates[0]"
    assert what in problem.what
    assert "name a PEM file" in problem.fix


def test_an_app_key_that_cannot_be_used(folder: Folder) -> None:
    configuration = folder.load(changed())
    (folder.path / "app.pem").write_text(pem(curve_key()))
    problem = only(configuration)
    assert problem.key == "github.apps[0].private_key_file"
    assert problem.what == '"app.pem" names a private key that is not RSA'


@pytest.mark.parametrize("files", [True, False])
def test_a_store_that_is_not_built(folder: Folder, files: bool) -> None:
    text = changed(("sqlite:///state.db", "postgresql://autoscaler@db/autoscaler"))
    (problem,) = preflight(folder.load(text), files=files)
    assert (problem.line, problem.key) == (9, "store")
    assert problem.what == "PostgreSQL is not built yet"
    assert problem.fix == "write sqlite:///FILE"


@pytest.mark.parametrize(
    ("old", "new", "what", "fix"),
    [
        ("[g5.xlarge]", "[m7g.large]", "m7g.large is arm64, the SKU is x64", "arch: arm64"),
        (
            "instance_types: [g5.xlarge]}]",
            "instance_types: [g5.xlarge]}]\n    arch: arm64",
            "g5.xlarge is x64, the SKU is arm64",
            "arch: x64",
        ),
    ],
)
def test_an_instance_type_of_the_other_architecture(
    folder: Folder, old: str, new: str, what: str, fix: str
) -> None:
    problem = only(folder.load(changed((old, new))))
    assert problem.key == "skus.gpu.on[0].instance_types[0]"
    assert problem.what == what
    assert fix in problem.fix


def test_everything_at_once(folder: Folder) -> None:
    configuration = folder.load(
        EXAMPLE.read_text()
        .replace("region: us-east-1", "region: us-esat-1")
        .replace("sqlite:///state.db", "postgresql://autoscaler@db/autoscaler")
    )
    for name in ("github-app.pem", "webhook-secret", "server.key", "ca.pem"):
        (folder.path / name).write_text("")
    keys = [problem.key for problem in preflight(configuration)]
    assert keys[:6] == [
        "github.apps[0].private_key_file",
        "github.webhook_secret_file",
        "server.tls.ca_file",
        "server.tls.key_file",
        "store",
        "providers.us-east-1.ec2.region",
    ]

"""`check` finds what would stop `serve`: certificates, regions, keys and the store."""

from collections.abc import Callable
from pathlib import Path

import pytest

from autoscaler.app.preflight import load_for_service
from autoscaler.config import Configuration, Problem
from tests.config.fleet_file import EXAMPLE, Folder, changed, unserved
from tests.config.keys import authority, certificate, curve_key, pem, rsa_key

CA = authority(curve_key("authority"))


def only(configuration: Configuration) -> Problem:
    """Return the only problem."""
    (problem,) = unserved(configuration)
    return problem


@pytest.mark.case(
    "a boot script that cannot run, or does not fit into user data of 16 KiB",
    topic="Operators' files",
    source="EC2: user data",
)
@pytest.mark.parametrize(
    ("content", "what", "fix"),
    [
        (b"echo\n", '"boot.sh" does not begin with #! and a program', "#!/bin/bash"),
        (b"#!/bin/sh\r\n", '"boot.sh" has line ends of Windows', "LF"),
        (b"#!/bin/sh\n\xff\n", '"boot.sh" is not UTF-8', "UTF-8"),
        (b"#!/bin/sh\n-----BEGIN PRIVATE KEY-----", '"boot.sh" contains a private key', "job"),
        (b"#!/bin/sh\n" + b"#" * 16_384, '"boot.sh" has 16394 bytes', "download the rest"),
    ],
)
def test_a_boot_script_that_cannot_run_is_refused(
    folder: Folder, content: bytes, what: str, fix: str
) -> None:
    (folder.path / "boot.sh").write_bytes(content)
    problem = only(
        folder.load(changed(('"runner-*"}', '"runner-*"}\n    boot_script_file: boot.sh')))
    )
    assert (problem.key, problem.line) == ("skus.gpu.boot_script_file", 17)
    assert problem.what.startswith(what)
    assert fix in problem.fix


@pytest.mark.parametrize(("os", "begin"), [("linux", "#!"), ("windows", "# ")])
def test_a_boot_script_as_long_as_the_message_says_can_be_served(
    folder: Folder, os: str, begin: str
) -> None:
    text = changed(('"runner-*"}', f'"runner-*"}}\n    os: {os}\n    boot_script_file: boot.sh'))
    script = folder.path / "boot.sh"
    script.write_text(begin + "x" * 20_000)
    room = int(only(folder.load(text)).what.rpartition(" ")[2])
    script.write_text(begin + "x" * (room - 1))
    assert only(folder.load(text)).key == "skus.gpu.boot_script_file"
    script.write_text(begin + "x" * (room - 2))
    assert unserved(folder.load(text)) == ()


def test_a_boot_script_of_windows_is_no_shell_script(folder: Folder) -> None:
    (folder.path / "boot.ps1").write_bytes(b"exit 0\r\n")
    text = changed(('"runner-*"}', '"runner-*"}\n    os: windows\n    boot_script_file: boot.ps1'))
    assert unserved(folder.load(text)) == ()
    (folder.path / "boot.ps1").write_text("#!/bin/bash\n")
    assert only(folder.load(text)).what.startswith('"boot.ps1" begins with #!')


def test_the_example_can_be_served(folder: Folder) -> None:
    assert unserved(folder.load(EXAMPLE.read_text())) == ()


@pytest.mark.case(
    "an App's key that cannot sign, a certificate without its key",
    topic="Operators' files",
    source="GitHub: App keys",
)
@pytest.mark.case(
    "a CA certificate too long for user data of 16 KiB",
    topic="Operators' files",
    source="EC2: user data",
)
@pytest.mark.parametrize(
    ("name", "content", "key", "what", "fix"),
    [
        (
            "server.key",
            pem(rsa_key()),
            "key_file",
            '"server.key" does not match the first certificate in "server.pem"',
            "name the key of that certificate",
        ),
        (
            "server.key",
            pem(curve_key("other")),
            "key_file",
            '"server.key" does not match the first certificate in "server.pem"',
            "name the key of that certificate",
        ),
        (
            "server.key",
            pem(curve_key(), b"hush"),
            "key_file",
            '"server.key" contains an encrypted key',
            "remove the password",
        ),
        ("server.key", "key", "key_file", "contains no readable private key", "a PEM file"),
        (
            "server.pem",
            "none",
            "certificate_file",
            "contains no readable certificate",
            "BEGIN CERTIFICATE",
        ),
        (
            "ca.pem",
            "none",
            "ca_file",
            '"ca.pem" contains no readable certificate',
            "BEGIN CERTIFICATE",
        ),
        (
            "ca.pem",
            CA + pem(curve_key("authority")),
            "ca_file",
            "contains a private key, and machines would get it",
            "leave only certificates",
        ),
        (
            "ca.pem",
            CA.encode() + b"# \xfcber",
            "ca_file",
            '"ca.pem" contains text that is not UTF-8',
            "leave only certificates",
        ),
        (
            "ca.pem",
            CA * 40,
            "ca_file",
            '"ca.pem" cannot be part of user data: user data of',
            "keep only the CA certificate",
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
        "ca of another encoding",
        "long ca",
    ],
)
def test_unusable_tls_files_are_reported(
    folder: Folder, name: str, content: str | bytes, key: str, what: str, fix: str
) -> None:
    configuration = folder.load(EXAMPLE.read_text())
    (folder.path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    problem = only(configuration)
    assert (problem.line, problem.key) == (11, f"server.tls.{key}")
    assert what in problem.what
    assert fix in problem.fix
    assert unserved(configuration, files=False) == ()


def test_certificate_and_key_can_be_in_one_file(folder: Folder) -> None:
    text = EXAMPLE.read_text().replace("key_file: server.key", "key_file: server.pem")
    configuration = folder.load(text)
    (folder.path / "server.pem").write_text(
        certificate(rsa_key(), "fleet.internal.example", signed_by=curve_key("authority"))
        + pem(rsa_key())
    )
    assert unserved(configuration) == ()


@pytest.mark.case(
    "a region for which no certificate can verify identity documents",
    topic="Operators' files",
    source="EC2: certificates by region",
)
@pytest.mark.parametrize("files", [True, False])
@pytest.mark.parametrize(
    ("region", "fix"),
    [
        ("us-esat-1", "did you mean us-east-1? If not, add AWS's certificate"),
        ("zz-nowhere-9", "add AWS's certificate for the region to identity_certificates"),
    ],
)
def test_a_region_without_an_identity_certificate_is_reported(
    folder: Folder, files: bool, region: str, fix: str
) -> None:
    text = changed(
        ("region: us-east-1", f"region: {region}"),
        ("[sg-0a]}", "[sg-0a], prices: {g5.xlarge: 1}}"),
    )
    (problem,) = unserved(folder.load(text), files=files)
    assert (problem.line, problem.key) == (12, "providers.east.ec2.region")
    assert f'no certificate for identity documents of "{region}" is known' in problem.what
    assert problem.fix.startswith(fix)


def test_a_region_with_a_configured_identity_certificate_is_accepted(folder: Folder) -> None:
    (folder.path / "mine.pem").write_text(certificate(rsa_key()))
    text = changed(
        ("region: us-east-1", "region: zz-nowhere-9"),
        ("[sg-0a]}", "[sg-0a], prices: {g5.xlarge: 1}, identity_certificates: [mine.pem]}"),
    )
    assert unserved(folder.load(text)) == ()


def _grow(file: Path) -> None:
    with file.open("wb") as opened:
        opened.truncate(2**21)


@pytest.mark.case(
    "an identity certificate that is not RSA of 2,048 bits",
    topic="Operators' files",
    source="EC2: certificates by region",
)
@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (lambda file: file.write_text("none"), "mine.pem: contains no readable PEM certificate"),
        (lambda file: file.write_text(certificate(curve_key())), "mine.pem: a certificate's key"),
        (_grow, '"mine.pem" is larger than 1024 KiB'),
    ],
    ids=["none", "curve", "large"],
)
def test_unusable_identity_certificates_are_reported(
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


@pytest.mark.case(
    "an App's key that cannot sign, a certificate without its key",
    topic="Operators' files",
    source="GitHub: App keys",
)
def test_an_unusable_app_key_is_reported(folder: Folder) -> None:
    configuration = folder.load(changed())
    (folder.path / "app.pem").write_text(pem(curve_key()))
    problem = only(configuration)
    assert problem.key == "github.apps[0].private_key_file"
    assert problem.what == '"app.pem" contains a private key that is not RSA'


@pytest.mark.parametrize("files", [True, False])
@pytest.mark.parametrize("url", ["postgresql://u@db/x", "postgresql://u@db/x?sslmode=prefer"])
def test_a_server_of_the_store_without_encryption_is_a_warning(
    folder: Folder, url: str, files: bool
) -> None:
    (problem,) = unserved(folder.load(changed(("sqlite:///state.db", url))), files=files)
    assert (problem.line, problem.key, problem.warning) == (9, "store", True)
    assert problem.what == '"db" may be reached without encryption'
    assert problem.fix == "add sslmode=verify-full and sslrootcert=/FILE to the URL"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u@db/x?sslmode=verify-full&sslrootcert=system",
        "postgresql://u@127.0.0.1:5433/x",
        "postgresql://u@localhost/x",
        "postgresql://u@db/x?host=/run/postgresql",
    ],
)
def test_a_server_of_the_store_with_encryption_or_on_this_host_is_fine(
    folder: Folder, url: str
) -> None:
    assert unserved(folder.load(changed(("sqlite:///state.db", url)))) == ()


def test_a_password_file_of_the_store_that_is_missing_is_reported(folder: Folder) -> None:
    file = folder.path / "db-password"
    text = changed(("sqlite:///state.db", f"postgresql://u@localhost/x?password_file={file}"))
    (problem,) = folder.problems(text)
    assert (problem.key, problem.what) == ("store", f"password_file {file} does not exist")
    file.write_text("hunter2")
    assert unserved(folder.load(text)) == ()


@pytest.mark.case(
    "an ARM image and an x64 type in one SKU",
    topic="Images and disks",
    source="Karpenter: instance types",
)
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
def test_an_instance_type_of_another_architecture_is_reported(
    folder: Folder, old: str, new: str, what: str, fix: str
) -> None:
    problem = only(folder.load(changed((old, new))))
    assert problem.key == "skus.gpu.on[0].instance_types[0]"
    assert problem.what == what
    assert fix in problem.fix


def test_all_problems_are_reported_at_once(folder: Folder) -> None:
    configuration = folder.load(
        EXAMPLE.read_text()
        .replace("region: us-east-1", "region: us-esat-1")
        .replace("sqlite:///state.db", "postgresql://autoscaler@db/autoscaler")
    )
    for name in ("github-app.pem", "webhook-secret", "server.key", "ca.pem"):
        (folder.path / name).write_text("")
    keys = [problem.key for problem in unserved(configuration)]
    assert keys[:6] == [
        "github.apps[0].private_key_file",
        "github.webhook_secret_file",
        "server.tls.ca_file",
        "server.tls.key_file",
        "store",
        "providers.us-east-1.ec2.region",
    ]


SPOILT = [
    ("region: us-east-1", "region: us-esat-1", "providers.us-east-1.ec2.region"),
    ("[g4dn.xlarge]", "[g4dn.xlrage]", 'skus."windows.g4dn.xlarge".on[0].instance_types[0]'),
    ("    arch: arm64\n", "", 'skus."linux.arm64.m7g.4xlarge".on[0].instance_types[0]'),
]


def test_an_unknown_key_does_not_hide_other_problems(folder: Folder) -> None:
    text = EXAMPLE.read_text().replace("fleet: ci-gpu", "fleet: ci-gpu\nflet: ci-gpu")
    for old, new, _ in SPOILT:
        assert old in text, old
        text = text.replace(old, new)
    (folder.path / "github-app.pem").write_text(pem(curve_key()))
    (folder.path / "server.key").write_text(pem(curve_key("other")))
    (folder.path / "ca.pem").write_text(certificate(rsa_key()) * 20)
    (folder.path / "webhook-secret").write_text("")
    keys = {problem.key for problem in folder.refused(text)}
    assert keys >= {key for _, _, key in SPOILT}
    assert keys >= {
        "flet",
        "github.apps[0].private_key_file",
        "github.webhook_secret_file",
        "server.tls.key_file",
        "server.tls.ca_file",
    }


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("region: us-east-1", "region: US EAST", "providers.east.ec2.region"),
        ("region: us-east-1", "region: [us-east-1]", "providers.east.ec2.region"),
        ("sqlite:///state.db", "mysql://db", "store"),
        ("[sg-0a]}", '[sg-0a], prices: {g5.xlarge: "1"}}', "providers.east.ec2.prices.g5.xlarge"),
        ("[sg-0a]}", '[sg-0a], quotas: {"P!": 1}}', "providers.east.ec2.quotas.P!"),
        (
            "[sg-0a]}",
            '[sg-0a], request_buckets: {"a b": {burst: 1, per_second: 1}}}',
            "providers.east.ec2.request_buckets.a b",
        ),
        ("[g5.xlarge]", "[G5]", "skus.gpu.on[0].instance_types[0]"),
        ("image: {", "arch: arm\n    image: {", "skus.gpu.arch"),
        ("image: {", "os: beos\n    image: {", "skus.gpu.os"),
        ("secret_file: secret", "secret_file: /dev/zero", "github.webhook_secret_file"),
        ("private_key_file: app.pem", "private_key_file: gone", "github.apps[0].private_key_file"),
    ],
)
def test_a_value_with_an_error_is_reported_once_and_not_checked_further(
    folder: Folder, old: str, new: str, key: str
) -> None:
    (problem,) = folder.refused(changed((old, new)))
    assert problem.key.replace('"', "") == key


def test_a_key_without_a_value_is_checked_once_it_has_one(folder: Folder) -> None:
    def said_of(value: str) -> list[str]:
        text = changed(("[sg-0a]}", f"[sg-0a], quotas: {{Standrad: {value}}}}}"))
        return [problem.what for problem in folder.refused(text)]

    assert said_of("many") == ['"many" is not a whole number']
    assert said_of("1") == ['"Standrad" is not a quota family']


def test_a_region_of_the_maximum_length_is_checked(folder: Folder) -> None:
    region = "us-" + "a" * 60 + "-1"
    text = changed(
        ("region: us-east-1", f"region: {region}"), ("[sg-0a]}", "[sg-0a], prices: {g5.xlarge: 1}}")
    )
    assert only(folder.load(text)).key == "providers.east.ec2.region"


def test_a_misspelt_instance_type_is_reported_once_with_the_right_one(folder: Folder) -> None:
    problem = only(folder.load(changed(("g5.xlarge", "g5.xlrage"))))
    assert (problem.what, problem.fix) == (
        "instance type g5.xlrage is not known",
        "did you mean g5.xlarge?",
    )


@pytest.mark.parametrize("content", ["", "SQLite format 3\0" + "\0" * 84])
def test_an_existing_store_is_accepted(folder: Folder, content: str) -> None:
    (folder.path / "state.db").write_text(content)
    assert unserved(folder.load(changed())) == ()


@pytest.mark.case(
    "a webhook secret short enough to be guessed",
    topic="Operators' files",
    source="GitHub: using webhooks",
)
@pytest.mark.parametrize(
    ("secrets", "short"),
    [("hunter2", True), ("x" * 19, True), ("x" * 20, False), ("x" * 64 + "\nold", True)],
)
def test_a_short_webhook_secret_is_a_warning(folder: Folder, secrets: str, short: bool) -> None:
    file = folder.path / "fleet.yaml"
    file.write_text(changed())
    (folder.path / "secret").write_text(secrets)
    warnings = load_for_service(file).warnings
    assert [(one.key, one.line) for one in warnings] == [("github.webhook_secret_file", 4)] * short
    for one in warnings:
        assert one.what == '"secret" has a secret of less than 20 characters, which can be guessed'
        assert "openssl rand -hex 32" in one.fix
        assert secrets.split()[-1] not in str(one)


def test_a_store_path_that_is_a_folder_or_no_database_is_reported(folder: Folder) -> None:
    (folder.path / "state.db").write_text("my notes on the fleet")
    assert folder.problem(changed()).what.endswith("is not a SQLite database")
    (folder.path / "state.db").unlink()
    (folder.path / "state.db").mkdir()
    problem = folder.problem(changed())
    assert (problem.line, problem.key) == (9, "store")
    assert problem.what == '"sqlite:///state.db" is not a file'
    assert problem.fix == "name a new file, or the fleet's own store"

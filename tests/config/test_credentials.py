"""Secret files are read completely, refused if they are invalid, and never shown."""

import pytest

from autoscaler.config import ConfigurationError, read_private_keys, read_webhook_secrets
from tests.config.fleet_file import EXAMPLE, NAMED_FILES, Folder, changed
from tests.config.keys import certificate, curve_key, pem, rsa_key, with_another_exponent


def test_keys_and_webhook_secrets_are_read(folder: Folder) -> None:
    configuration = folder.load(EXAMPLE.read_text())
    (key,) = read_private_keys(configuration)
    assert key.id == 1234
    assert key.private_key.get_secret_value() == NAMED_FILES["github-app.pem"].encode()
    secrets = [secret.get_secret_value() for secret in read_webhook_secrets(configuration)]
    assert secrets == [b"old-secret" * 2, b"new-secret" * 2]


def test_secrets_are_in_no_repr(folder: Folder) -> None:
    configuration = folder.load(EXAMPLE.read_text())
    keys, secrets = read_private_keys(configuration), read_webhook_secrets(configuration)
    shown = f"{keys!r} {secrets!r} {configuration!r} {configuration.settings.model_dump()}"
    assert "secret'" not in shown.replace("webhook-secret'", "")
    assert NAMED_FILES["github-app.pem"].splitlines()[1] not in shown


def test_blank_lines_and_carriage_returns_are_not_part_of_a_secret(folder: Folder) -> None:
    configuration = folder.load(EXAMPLE.read_text())
    (folder.path / "webhook-secret").write_bytes(b"\r\none\r\n\n  \ntwo")
    secrets = [secret.get_secret_value() for secret in read_webhook_secrets(configuration)]
    assert secrets == [b"one", b"two"]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "contains no secret"),
        (b"\n \n", "contains no secret"),
        (b"s\n" * 17, "more than 16 secrets"),
        (b"s" * 70_000, "larger than 64 KiB"),
    ],
)
def test_a_file_without_a_webhook_secret_is_refused(
    folder: Folder, content: bytes, what: str
) -> None:
    configuration = folder.load(EXAMPLE.read_text())
    (folder.path / "webhook-secret").write_bytes(content)
    with pytest.raises(ConfigurationError, match=what) as caught:
        read_webhook_secrets(configuration)
    (problem,) = caught.value.problems
    assert (problem.line, problem.key) == (6, "github.webhook_secret_file")
    assert "one secret per line" in problem.fix


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (pem(rsa_key(), b"hush"), "contains an encrypted key"),
        (pem(curve_key()), "contains a private key that is not RSA"),
        (pem(rsa_key()).replace("MII", "AAA", 1), "contains no readable private key"),
        (pem(with_another_exponent()), "contains no readable private key"),
        (certificate(curve_key()), "contains a certificate, not a private key"),
    ],
    ids=["encrypted", "curve", "broken", "numbers", "certificate"],
)
def test_an_invalid_app_key_is_refused(folder: Folder, content: str, what: str) -> None:
    configuration = folder.load(changed())
    (folder.path / "app.pem").write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        read_private_keys(configuration)
    (problem,) = caught.value.problems
    assert (problem.key, problem.what) == (
        "github.apps[0].private_key_file",
        f'"app.pem" {what}',
    )
    assert content.splitlines()[1] not in str(problem)


def test_every_bad_key_file_is_reported(folder: Folder) -> None:
    two = "[{id: 1, private_key_file: app.pem}, {id: 2, private_key_file: github-app.pem}]"
    text = changed(("[{id: 1, private_key_file: app.pem}]", two))
    configuration = folder.load(text)
    (folder.path / "app.pem").unlink()
    (folder.path / "github-app.pem").write_text("-----BEGIN CERTIFICATE-----")
    with pytest.raises(ConfigurationError) as caught:
        read_private_keys(configuration)
    found = [(problem.key, problem.what) for problem in caught.value.problems]
    assert found == [
        ("github.apps[0].private_key_file", "cannot be read: No such file or directory"),
        (
            "github.apps[1].private_key_file",
            '"github-app.pem" contains a certificate, not a private key',
        ),
    ]

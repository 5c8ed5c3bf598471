"""Log lines: their form, level and time, and no secret in any of them."""

import base64
import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.observability.logs import LogLevel, LogStyle, configure_logging
from autoscaler.observability.redaction import (
    REDACTED,
    TEXT_LIMIT,
    is_secret_key,
    redact,
    redact_text,
)


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def json_lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_both_kinds_of_logger_write_one_json_object_a_line() -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)
    structlog.get_logger("autoscaler.a").info("launched", sku="linux.gpu", count=3)
    logging.getLogger("autoscaler.b").warning("held back %s", "quota", extra={"sku": "x"})
    first, second = json_lines(stream)
    assert first["event"] == "launched"
    assert first["sku"] == "linux.gpu"
    assert first["count"] == 3
    assert first["level"] == "info"
    assert first["logger"] == "autoscaler.a"
    assert str(first["time"]).endswith("Z")
    assert second["event"] == "held back quota"
    assert second["level"] == "warning"
    assert second["logger"] == "autoscaler.b"
    assert second["sku"] == "x"
    assert str(second["time"]).endswith("Z")


def test_level_applies_to_both_kinds() -> None:
    stream = io.StringIO()
    configure_logging(LogLevel.WARNING, stream=stream)
    structlog.get_logger("a").info("no")
    logging.getLogger("b").info("no")
    structlog.get_logger("a").error("yes")
    logging.getLogger("b").error("yes")
    assert [line["event"] for line in json_lines(stream)] == ["yes", "yes"]


def test_verbose_libraries_log_only_warnings() -> None:
    stream = io.StringIO()
    configure_logging(LogLevel.INFO, stream=stream)
    logging.getLogger("botocore.hooks").info("no")
    logging.getLogger("botocore.hooks").warning("yes")
    assert [line["event"] for line in json_lines(stream)] == ["yes"]


def test_configuring_logging_again_replaces_the_first_configuration() -> None:
    first, second = io.StringIO(), io.StringIO()
    configure_logging(stream=first)
    configure_logging(stream=second)
    logging.getLogger("a").warning("once")
    assert first.getvalue() == ""
    assert len(json_lines(second)) == 1


@pytest.mark.parametrize(
    ("stream", "style", "is_json"),
    [
        (io.StringIO(), LogStyle.AUTO, True),
        (Terminal(), LogStyle.AUTO, False),
        (Terminal(), LogStyle.JSON, True),
        (io.StringIO(), LogStyle.CONSOLE, False),
    ],
)
def test_the_log_format_follows_the_option_and_the_terminal(
    stream: io.StringIO, style: LogStyle, is_json: bool
) -> None:
    configure_logging(style=style, stream=stream)
    structlog.get_logger("a").info("ready", machine="m1")
    text = stream.getvalue()
    assert "ready" in text
    assert "m1" in text
    assert text.startswith("{") == is_json


@pytest.mark.parametrize(
    ("stream", "no_color", "colored"),
    [
        (Terminal(), None, True),
        (Terminal(), "", True),
        (Terminal(), "1", False),
        (io.StringIO(), None, False),
    ],
)
def test_console_lines_have_colors_on_a_terminal_unless_the_environment_says_no(
    stream: io.StringIO, no_color: str | None, colored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if no_color is None:
        monkeypatch.delenv("NO_COLOR", raising=False)
    else:
        monkeypatch.setenv("NO_COLOR", no_color)
    configure_logging(style=LogStyle.CONSOLE, stream=stream)
    structlog.get_logger("a").info("ready", machine="m1")
    assert ("\x1b[" in stream.getvalue()) == colored


SECRETS = [
    ("jit_config", "c2VjcmV0"),
    ("token", "t0p"),
    ("Authorization", "Bearer t0p"),
    ("nonce", "ab" * 32),
    ("private_key", "t0p"),
    ("webhook_secret", "t0p"),
    ("password", "t0p"),
    ("X-Hub-Signature-256", "sha256=t0p"),
]


@pytest.mark.parametrize(("key", "secret"), SECRETS)
@pytest.mark.parametrize("style", [LogStyle.JSON, LogStyle.CONSOLE])
def test_a_secret_s_key_hides_its_value_at_any_depth(
    key: str, secret: str, style: LogStyle
) -> None:
    stream = io.StringIO()
    configure_logging(style=style, stream=stream)
    structlog.get_logger("a").warning("x", **{key: secret})
    structlog.get_logger("a").warning("x", request={"headers": [{key: secret}]})
    logging.getLogger("b").warning("x", extra={key: secret})
    assert secret not in stream.getvalue()
    assert stream.getvalue().count(REDACTED) == 3


@pytest.mark.parametrize(
    "text",
    [
        "used ghs_abcdefghijklmnop0123456789",
        "used github_pat_11ABCDEFG0123456789_abcdef",
        "Authorization: Bearer hunter2hunter2",
        "jwt eyJhbGciOiJSUzI1NiJ9.eyJpYXQiOjE3MDB9.c2lnbmF0dXJl",
        "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----",
        "postgresql://autoscaler:hunter2@db/autoscaler",
    ],
)
def test_logs_hide_text_that_looks_like_a_credential(text: str) -> None:
    stream = io.StringIO()
    configure_logging(stream=stream)
    logging.getLogger("a").warning("said %s", text)
    try:
        raise ValueError(text)  # noqa: TRY301 - the traceback is what is looked at
    except ValueError:
        logging.getLogger("a").exception("failed")
        structlog.get_logger("b").exception("failed")
    written = stream.getvalue()
    assert written.count(REDACTED) == 3
    for secret in ("hunter2", "abcdefghijklmnop", "11ABCDEFG", "c2lnbmF0dXJl"):
        assert secret not in written


FILES = {".runner": "eyJBZ2VudElkIjoiMSJ9", ".credentials": "e30=" * 20}
JIT_BLOB = base64.b64encode(json.dumps(FILES).encode()).decode()
PRETTY_BLOB = base64.b64encode(json.dumps(FILES, indent=8).encode() * 2).decode()


@pytest.mark.case(
    "a JIT configuration in an error's text",
    topic="Hostile input",
    source="actions/runner Constants.cs",
)
@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (f"run.sh --jitconfig {JIT_BLOB} started", JIT_BLOB),
        (f"encoded_jit_config={JIT_BLOB}", JIT_BLOB),
        (f"'{PRETTY_BLOB}'", PRETTY_BLOB),
        (f"nonce={'0f' * 32};", "0f" * 32),
        (f"sha256={'AB' * 32}", "AB" * 32),
        ("authorization: bearer t0psecret", "t0psecret"),
        ("BEARER   t0psecret,", "t0psecret"),
        ("{'Authorization': 'Bearer t0psecret'}", "t0psecret"),
    ],
)
def test_the_projects_own_secrets_are_recognized_by_their_form(text: str, secret: str) -> None:
    """Also in a value whose key does not show it, for example in an error message."""
    shown = redact(None, "", {"reason": text, "error": ValueError(text)})
    assert secret not in json.dumps(shown)
    assert json.dumps(shown).count(REDACTED) == 2


@pytest.mark.parametrize(
    "text",
    [
        "0b989ba4-242f-11e5-81e1-c7b6966d2516",  # X-GitHub-Delivery
        "da39a3ee5e6b4b0d3255bfef95601890afd80709",  # a commit
        "ci-gpu-0badcafe-00c0ffee00c0ffee-1",  # a runner
        "i-078517ca8a70a1dde",
        "ami-0fa9e1f64142cde17",
        "arn:aws:iam::123456789012:instance-profile/gpu-runner",
        "subnet-0a,subnet-0b",
        "00c0ffee00c0ffee",  # a machine, a call
        "9b2e7c1a-8f5d-4a70-9d3f-2f1f3f8f4f2a",  # EC2's RequestId
        "https://api.github.com/orgs/acme/actions/runners/generate-jitconfig",
        "/var/lib/autoscaler/" + "a-rather-deep-folder/" * 10 + "state.db",
        "the bearer's proof",
    ],
)
def test_logs_show_the_ids_that_operators_search_for(text: str) -> None:
    """Ids with which operators search GitHub and EC2 are not secrets."""
    assert redact(None, "", {"event": "x", "about": text})["about"] == text


@pytest.mark.parametrize("style", [LogStyle.JSON, LogStyle.CONSOLE])
def test_a_traceback_is_shown_without_local_variables(style: LogStyle) -> None:
    stream = io.StringIO()
    configure_logging(style=style, stream=stream)
    local = "".join(("hidden", "in", "a", "frame"))
    try:
        raise RuntimeError("broke")  # noqa: TRY301 - as above
    except RuntimeError:
        structlog.get_logger("a").exception("failed")
    assert local not in stream.getvalue()
    assert "RuntimeError: broke" in stream.getvalue()


def test_numbers_booleans_and_none_are_logged_unchanged() -> None:
    entry = {"event": "x", "count": 3, "rate": 0.5, "ok": True, "token": None, "has_token": True}
    assert redact(None, "", dict(entry)) == entry


def test_the_size_of_a_log_entry_is_bounded() -> None:
    deep: list[object] = []
    for _ in range(100):
        deep = [deep]
    entry = redact(None, "", {"event": "y" * 10**6, "many": list(range(10**5)), "deep": deep})
    assert len(json.dumps(entry)) < 2 * TEXT_LIMIT


def test_a_repr_that_raises_hides_only_its_value() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    assert "Broken" in str(redact(None, "", {"event": "x", "it": Broken()})["it"])


@settings(derandomize=True, deadline=None)
@given(st.dictionaries(st.text(), st.recursive(st.text() | st.binary(), st.lists), max_size=5))
def test_any_entry_is_logged_as_json_without_the_values_of_secret_keys(
    entry: dict[str, object],
) -> None:
    clean = redact(None, "", {**entry, "nonce": "0123456789abcdef"})
    assert "0123456789abcdef" not in json.dumps(clean)
    assert all(clean[key] == REDACTED for key in entry if is_secret_key(key))


@pytest.mark.case(
    "an error quotes a JIT configuration with escaped characters",
    topic="Hostile input",
    source="RFC 8259, 7",
)
@pytest.mark.parametrize(
    "quoted",
    [
        "{0}",
        "\\n{0}",
        '{{"encoded_jit_config":"{0}"}}',
        '{{\\"encoded_jit_config\\":\\"{0}\\"}}',
        "config.sh --jitconfig {0} failed",
    ],
)
@pytest.mark.parametrize(
    ("letter", "written"), [("/", "/"), ("/", "\\/"), ("/", "%2F"), ("+", "\\u002B")]
)
def test_a_jit_configuration_that_an_error_quotes_is_not_written(
    quoted: str, letter: str, written: str
) -> None:
    """.NET, JSON and URLs escape its letters, which split it into pieces that look like words."""
    secret = "eyJ" + ("A1b2C3d4" * 3 + letter) * 20
    reported = redact_text(
        "GitHub said: " + quoted.format(secret.replace(letter, written)) + " (422)"
    )
    assert "A1b2C3d4" not in reported
    assert "GitHub said" in reported
    assert "(422)" in reported


@pytest.mark.parametrize("width", [60, 64, 76])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\\n", "\\r\\n"])
def test_a_jit_configuration_that_is_broken_into_lines_is_not_written(
    width: int, line_end: str
) -> None:
    secret = "eyJ" + "A1b2C3d4" * 200
    lines = [secret[at : at + width] for at in range(0, len(secret), width)]
    reported = redact_text(f"GitHub said: {line_end.join(lines)} (422)")
    assert "A1b2C3d4" not in reported
    assert "GitHub said" in reported
    assert "(422)" in reported


_HEADER, _PAYLOAD, _LEFT = "eyJ" + "h" * 120, "eyJ" + "p" * 60, "LEFT" + "s" * 60


@pytest.mark.case(
    "one pattern of secrets finds a part of a secret that another pattern knows as a whole",
    topic="Hostile input",
    source="RFC 8259, 7",
)
@pytest.mark.parametrize(
    "secret",
    [
        f"{_HEADER}.{_PAYLOAD}.{_LEFT}",
        f"ghs_{_PAYLOAD}.{_HEADER}.{_LEFT}",
        f"Bearer\n{_HEADER}.{_LEFT}",
        f"--jitconfig\n{_HEADER}.{_LEFT}",
        f"-----BEGIN PRIVATE KEY-----\nM/{_HEADER}==\n!{_LEFT}\n-----END PRIVATE KEY-----",
        f"ghs_{'a' * 36}/{'b' * 300}{_LEFT}",
        f"\\n{'A' * 300}{_LEFT}",
        f"\\r{'A' * 300}{_LEFT}",
        f"\\u002f{_LEFT}{'A' * 233}",
    ],
)
def test_a_secret_is_not_written_in_part(secret: str) -> None:
    reported = redact_text(f"GitHub said: {secret} (422)")
    assert "LEFT" not in reported
    assert "GitHub said" in reported
    assert "(422)" in reported

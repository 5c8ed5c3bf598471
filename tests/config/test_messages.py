"""The messages of `check` for common mistakes: the right cause, place and fix."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autoscaler.config import ConfigurationError
from autoscaler.config.load import load
from autoscaler.config.settings.scalars import TIME_ZONE_FIX
from tests.config.fleet_file import EXAMPLE, MINIMAL, Folder, changed
from tests.config.keys import certificate, pem, rsa_key

ANOTHER_USER = 65534
ON = MINIMAL[MINIMAL.index("    on: [{") :]
SECOND_IN_REGION = """\
[sg-0a]}
  also:
    ec2: {region: us-east-1, subnets: [subnet-1], security_groups: [sg-1]"""


@contextmanager
def unprivileged() -> Iterator[Folder]:
    """A folder that this process owns, while it does not have root's permission to read everything."""
    with tempfile.TemporaryDirectory() as name:
        folder = Folder(Path(name))
        folder.refused(changed(("fleet: ci", "fleet: CI")))  # imports what it needs, still as root
        if os.geteuid() != 0:
            yield folder
            return
        for path in (folder.path, *folder.path.iterdir()):
            os.chown(path, ANOTHER_USER, ANOTHER_USER)
        os.seteuid(ANOTHER_USER)
        try:
            yield folder
        finally:
            os.seteuid(0)


@pytest.mark.case(
    "an unknown time zone: the error suggests the zone of the same city, or none",
    topic="Operators' files",
    source="IANA: time zone database",
)
@pytest.mark.parametrize(
    ("written", "fix"),
    [
        ("Europe/Munich", TIME_ZONE_FIX),
        ("Asia/Beijing", TIME_ZONE_FIX),
        ("PST", TIME_ZONE_FIX),
        ("america/new_york", "write America/New_York"),
        ("New York", "write America/New_York"),
        ("Berlin", "write Europe/Berlin"),
        ("America/Berlin", "write Europe/Berlin"),
        ("Amercia/New_York", "write America/New_York"),  # codespell:ignore amercia
        ("Europe/Berln", "write Europe/Berlin"),
        ("Louisville", "write America/Louisville"),
        ("utc", "write UTC"),
        ("CST", TIME_ZONE_FIX),  # Chicago's, or China's
        ("UTC+2", TIME_ZONE_FIX),
        ("GMT+2", TIME_ZONE_FIX),  # Etc/GMT+2 is two hours the other way
        ("EST5", TIME_ZONE_FIX),
        ("Gotham", TIME_ZONE_FIX),
        ("America", TIME_ZONE_FIX),
        ("../etc/passwd", TIME_ZONE_FIX),
    ],
)
def test_an_unknown_time_zone_suggests_the_same_place_or_none(
    folder: Folder, written: str, fix: str
) -> None:
    idle = f'    idle: {{schedule: [{{cron: "0 7 * * *", min: 1, timezone: {written}}}]}}\n'
    problem = folder.problem(MINIMAL + idle)
    assert problem.key == "skus.gpu.idle.schedule[0].timezone"
    assert problem.fix == fix


@pytest.mark.case(
    "files that the controller's user cannot read or write, including the store's folder",
    topic="Operators' files",
    source="SQLite: WAL",
)
def test_a_secret_file_without_read_permission_is_reported() -> None:
    with unprivileged() as folder:
        (folder.path / "secret").chmod(0)
        problem = folder.problem(changed())
        assert problem.what == '"secret" cannot be read: Permission denied'
        user = os.geteuid()
        assert (
            problem.fix == f"let the user who runs this (id {user}) read it and enter its folders"
        )


def test_a_fleet_yaml_without_read_permission_is_reported() -> None:
    with unprivileged() as folder:
        (folder.path / "fleet.yaml").chmod(0)
        (problem,) = folder.refused_as_it_is()
        assert problem.what == "cannot be read: Permission denied"
        assert problem.fix.startswith("let the user who runs this")


def test_a_missing_file_is_reported_with_the_folder_where_names_start(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.path / "fleet.yaml").write_text(changed(("app.pem", "gone.pem")))
    monkeypatch.chdir(folder.path)
    (problem,) = folder.refused_as_it_is(Path("fleet.yaml"))
    assert problem.what == '"gone.pem" does not exist'
    assert (
        problem.fix == f"create the file, or correct the name, which is relative to {folder.path}"
    )


def test_a_secret_too_long_for_a_name_is_not_repeated(folder: Folder) -> None:
    problem = folder.problem(changed(("file: secret", f"file: {'hunter2' * 50}")))
    assert problem.key == "github.webhook_secret_file"
    assert "hunter2" not in str(problem)


@pytest.mark.case(
    "a tab in the indentation",
    topic="Operators' files",
    source="YAML 1.2.2",
)
def test_a_tab_is_reported_as_a_tab(folder: Folder) -> None:
    problem = folder.problem(changed(("    image:", "\timage:")))
    assert (problem.line, problem.what) == (16, "is indented with a tab")
    assert problem.fix == "indent with spaces: YAML does not allow tabs there"


@pytest.mark.parametrize("sign", ["@", "`", "%"])
def test_a_reserved_character_of_yaml_is_reported(folder: Folder, sign: str) -> None:
    problem = folder.problem(changed(("fleet: ci", f"fleet: {sign}ci")))
    assert (problem.line, problem.what) == (1, f"has a value that begins with {sign}")
    assert problem.fix == "put the value in quotes"


@pytest.mark.case(
    "a certificate in place of a key, and other mix-ups of PEM files",
    topic="Operators' files",
    source="RFC 7468",
)
@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        (
            "server.key",
            certificate(rsa_key()),
            '"server.key" contains a certificate, not a private',
        ),
        ("server.pem", pem(rsa_key()), '"server.pem" contains a private key, not a certificate'),
        ("ca.pem", pem(rsa_key()), '"ca.pem" contains a private key, not a certificate'),
        (
            "github-app.pem",
            certificate(rsa_key()),
            '"github-app.pem" contains a certificate, not a',
        ),
        (
            "server.key",
            "-----BEGIN PUBLIC KEY-----\nMII\n-----END PUBLIC KEY-----\n",
            '"server.key" contains a public key, not a private key',
        ),
        (
            "server.key",
            "-----BEGIN CERTIFICATE REQUEST-----\nMII\n-----END CERTIFICATE REQUEST-----\n",
            '"server.key" contains a certificate request, not a private key',
        ),
    ],
)
def test_the_wrong_kind_of_pem_file_is_reported(
    folder: Folder, name: str, content: str, what: str
) -> None:
    (folder.path / name).write_text(content)
    (problem,) = folder.refused(EXAMPLE.read_text())
    assert problem.what.startswith(what)


@pytest.mark.parametrize("account", ["", ', account: "123456789012"'])
def test_two_providers_with_the_same_region_are_reported(folder: Folder, account: str) -> None:
    problem = folder.problem(changed(("[sg-0a]}", f"{SECOND_IN_REGION}{account}}}")))
    assert (problem.line, problem.key) == (14, "providers.also.ec2.region")
    assert problem.what == 'us-east-1 is already the region of provider "east" (line 11)'
    assert (
        problem.fix == 'list the subnets of both under "east": a region can have one provider only'
    )


def test_a_missing_key_is_reported_with_its_meaning_and_no_line_to_copy(folder: Folder) -> None:
    problem = folder.problem(changed(("fleet: ci\n", "")))
    assert problem.fix == (
        "add the key fleet (The fleet's name, in the names of runners and the tags of machines)"
    )


@pytest.mark.case(
    "files that the controller's user cannot read or write, including the store's folder",
    topic="Operators' files",
    source="SQLite: WAL",
)
def test_a_store_in_a_read_only_folder_is_reported() -> None:
    with unprivileged() as folder:
        (folder.path / "kept").mkdir(0o555)
        problem = folder.problem(changed(("sqlite:///state.db", "sqlite:///kept/state.db")))
        assert (problem.line, problem.key) == (9, "store")
        assert problem.what == '"sqlite:///kept/state.db" cannot be written: Permission denied'
        user = os.geteuid()
        assert (
            problem.fix
            == f"let the user who runs this (id {user}) write to the file and to its folder, "
            f"{folder.path}/kept"
        )


@pytest.mark.case(
    "files that the controller's user cannot read or write, including the store's folder",
    topic="Operators' files",
    source="SQLite: WAL",
)
def test_a_read_only_store_is_reported() -> None:
    with unprivileged() as folder:
        (folder.path / "state.db").write_bytes(b"SQLite format 3\0")
        (folder.path / "state.db").chmod(0o444)
        problem = folder.problem(changed())
        assert problem.what == '"sqlite:///state.db" cannot be written: Permission denied'


def test_a_store_on_a_file_system_without_new_files_is_reported(folder: Folder) -> None:
    problem = folder.problem(changed(("sqlite:///state.db", "sqlite:////proc/state.db")))
    assert '"sqlite:////proc/state.db" cannot be written' in problem.what
    assert problem.fix == "/proc takes no new files: use a folder on a writable disk"


def test_the_check_of_the_store_leaves_no_file(folder: Folder) -> None:
    store = folder.path / "state.db"
    store.write_bytes(b"SQLite format 3\0")
    before = store.stat()
    folder.load(MINIMAL)
    names = {path.name for path in folder.path.iterdir()}
    folder.load(MINIMAL)
    assert {path.name for path in folder.path.iterdir()} == names
    assert store.stat().st_mtime_ns == before.st_mtime_ns


SCHEDULED = """\
    idle: {min: 2, schedule: [{cron: "0 7 * * *", min: 5}, {cron: "0 9 * * *", min: 20}]}
"""


def test_a_scheduled_minimum_above_the_cap_of_its_sku_is_reported(folder: Folder) -> None:
    problem = folder.problem(MINIMAL + "    max_machines: 5\n" + SCHEDULED)
    assert (problem.line, problem.key) == (18, "skus.gpu.idle.schedule[1].min")
    assert problem.what == "20 is more than max_machines, 5"


def test_a_scheduled_minimum_above_the_cap_of_the_fleet_is_reported(folder: Folder) -> None:
    other = f"  other:\n{ON}    idle: {{min: 1}}\n"
    text = changed(("store:", "limits: {machines: 20}\nstore:")) + SCHEDULED + other
    (warning,) = folder.load(text).warnings
    assert (warning.line, warning.key) == (18, "skus.gpu.idle.schedule[1].min")
    assert warning.what == "adds up to 21 machines with every idle.min, and limits.machines is 20"
    assert folder.load(text.replace("machines: 20", "machines: 21")).warnings == ()


@pytest.mark.parametrize(
    ("key", "new", "what"),
    [
        (
            "github.apps[0].id",
            "id: 99999999999999999999999999",
            "99999999999999999999999999 is above",
        ),
        (
            "fleet",
            "fleet: 123456789012345678901234567890",
            "123456789012345678901234567890 is not text",
        ),
    ],
)
def test_a_huge_number_is_shown_as_it_is_written(
    folder: Folder, key: str, new: str, what: str
) -> None:
    old = {"fleet": "fleet: ci", "github.apps[0].id": "id: 1"}[key]
    problem = folder.problem(changed((old, new)))
    assert (problem.key, problem.what[: len(what)]) == (key, what)


def test_letters_of_every_language_are_shown_as_they_are(folder: Folder) -> None:
    problem = folder.problem(changed(("fleet: ci", "fleet: Köln-日本")))
    assert problem.what == '"Köln-日本" is not a fleet name'
    # A line separator and a mark that reverses the text are escaped.
    problem = folder.problem(changed(("fleet: ci", 'fleet: "K\\u2028\\u202e"')))
    assert problem.what == '"K\\u2028\\u202e" is not a fleet name'


def test_a_file_name_with_control_characters_stays_on_its_line(folder: Folder) -> None:
    file = folder.path / "a\nb\x1b[31m.yaml"
    with pytest.raises(ConfigurationError) as caught:
        load(file, ())
    (problem,) = caught.value.problems
    assert str(problem).startswith(f"{folder.path}/a\\nb\\u001b[31m.yaml: cannot be read: ")


@pytest.mark.parametrize("name", ["", "."])
def test_an_empty_name_is_the_current_folder_which_is_not_a_file(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(Path(name), ())
    assert (
        str(caught.value)
        == ".: cannot be read: it is a folder (an empty name means the current folder); "
        "fix: name a file to read"
    )

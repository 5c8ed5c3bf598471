"""The file of operators' tokens that fleet.yaml names: read at the start, and again when it changes."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from autoscaler.app.endpoints import token_file
from autoscaler.config import load
from autoscaler.model.operators import Operator, OperatorName, Role
from autoscaler.providers.registry import provider_kinds
from autoscaler.server.tokens import UnusableTokensError
from tests.config.fleet_file import Folder, changed

OLD, NEW = "o" * 40, "n" * 40
KEY = "public_url: http://127.0.0.1:8443"


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    file = Folder(tmp_path).path / "fleet.yaml"
    file.write_text(changed((KEY, f"{KEY}\n  admin_token_file: admin-token")))
    (tmp_path / "admin-token").write_text(f"alice operate {OLD}\nconsole read {NEW}\n")
    return file


def test_each_line_is_a_token_with_its_owner(fleet: Path) -> None:
    found = token_file(load(fleet, provider_kinds()))
    assert found is not None
    tokens = found.tokens()
    assert tokens.holder_of(OLD) == Operator(OperatorName("alice"), Role.OPERATE)
    assert tokens.holder_of(NEW) == Operator(OperatorName("console"), Role.READ)


def test_an_error_in_a_changed_file_names_the_key_and_the_line(fleet: Path) -> None:
    found = token_file(load(fleet, provider_kinds()))
    assert found is not None
    (fleet.parent / "admin-token").write_text(f"console write {NEW}\n")
    with capture_logs() as lines:
        assert found.tokens().holder_of(OLD) is not None
    (line,) = lines
    assert 'server.admin_token_file: "admin-token" has a role in line 1' in line["error"]
    assert NEW not in str(line)


def test_a_file_that_broke_after_it_was_checked_stops_the_start(fleet: Path) -> None:
    configuration = load(fleet, provider_kinds())
    (fleet.parent / "admin-token").write_text("")
    with pytest.raises(UnusableTokensError, match="contains no secret"):
        token_file(configuration)


def test_without_a_file_there_are_no_tokens(tmp_path: Path) -> None:
    file = Folder(tmp_path).path / "fleet.yaml"
    file.write_text(changed())
    assert token_file(load(file, provider_kinds())) is None

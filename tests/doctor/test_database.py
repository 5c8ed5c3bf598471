"""What doctor says of a PostgreSQL server."""

from autoscaler.config.examinations import Outcome
from autoscaler.doctor.host import judge_database
from autoscaler.store.postgresql.inspection import Inspection


def test_a_server_that_serves_is_fine_and_its_leader_is_named() -> None:
    found = judge_database(Inspection(16, read_only=False, encrypted=True, leader="a, process 1"))
    assert (found.outcome, found.what) == (Outcome.FINE, "PostgreSQL 16; a, process 1 leads")
    found = judge_database(Inspection(16, read_only=False, encrypted=False, leader=None))
    assert found.what == "PostgreSQL 16; no replica leads; the session is not encrypted"


def test_a_standby_and_an_old_server_are_wrong() -> None:
    standby = judge_database(Inspection(16, read_only=True, encrypted=True, leader=None))
    assert standby.outcome is Outcome.WRONG
    assert "target_session_attrs=read-write" in standby.fix
    old = judge_database(Inspection(13, read_only=False, encrypted=True, leader=None))
    assert (old.outcome, old.fix) == (Outcome.WRONG, "upgrade the server")

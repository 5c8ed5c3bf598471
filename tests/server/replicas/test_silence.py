"""When a replica calls the leader silent."""

from autoscaler.server.replicas.silence import Silence


def test_a_leader_is_silent_once_its_requests_have_failed_for_a_minute() -> None:
    silence = Silence(60.0)
    silence.note_failure(7, 100.0)
    silence.note_failure(7, 159.0)
    assert not silence.lasts(7, 159.0), "a leader that was just lost"
    silence.note_failure(7, 160.0)
    assert silence.lasts(7, 160.0)
    assert silence.lasts(7, 219.0)
    assert not silence.lasts(7, 220.0), "without requests for a minute, it is tried again"
    silence.note_failure(7, 230.0)
    assert silence.lasts(7, 230.0)


def test_an_answer_and_a_new_leader_end_the_silence() -> None:
    silence = Silence(60.0)
    silence.note_failure(7, 100.0)
    silence.note_answer()
    silence.note_failure(7, 160.0)
    assert not silence.lasts(7, 160.0)
    silence.note_failure(7, 220.0)
    assert not silence.lasts(8, 220.0)
    silence.note_failure(8, 221.0)
    assert not silence.lasts(8, 221.0)

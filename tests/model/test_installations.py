"""The IDs of an installation: its own, and former ones from before adoptions."""

from autoscaler.model.identifiers import InstallationId, Installations


def test_the_former_ids_of_an_installation_are_known() -> None:
    own, *others = (InstallationId(f"{number:08x}") for number in range(12))
    ids = Installations(own)
    assert ids.all == (own,)
    ids = ids.after_adoption(others[0])
    assert ids == Installations(others[0], (own,))
    assert ids.all == (others[0], own)
    assert ids.after_adoption(own) == Installations(own, (others[0],)), "one that it had before"
    for one in others[1:]:
        ids = ids.after_adoption(one)
    assert ids.all == tuple(reversed(others[2:])), "the newest eight, and its own"

"""What a gateway thinks of nodes whose database was away for longer than their leases."""

import logging

import pytest

from gateway.members import Members
from tests.support.fake_cluster import FakeDirectory, no_tls, node


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def directory() -> FakeDirectory:
    directory = FakeDirectory()
    directory.known = {"one": node("one"), "two": node("two")}
    return directory


async def test_nodes_may_renew_after_the_database_was_away(
    directory: FakeDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    """All leases have ended by then; who does not renew is lost a little later."""
    caplog.set_level(logging.WARNING, "gateway.members")
    clock = Clock()
    members = Members(directory, no_tls, clock=clock)
    await members.refresh()
    one, two = members.named("one"), members.named("two")
    assert one is not None
    assert two is not None
    directory.away = True
    await members.refresh()
    assert (one.alive, two.alive) == (True, True)
    directory.away = False
    for name in ("one", "two"):
        directory.dies(name)
    await members.refresh()
    assert (one.alive, two.alive) == (True, True)
    assert "does not renew" not in caplog.text
    directory.known["one"] = node("one")
    clock.now += 9
    await members.refresh()
    assert (one.alive, two.alive) == (True, True)
    clock.now += 2
    await members.refresh()
    assert (one.alive, two.alive) == (True, False)
    assert "the node two does not renew its lease" in caplog.text
    await members.close()


async def test_a_lease_that_ends_while_the_database_answers_counts_at_once(
    directory: FakeDirectory,
) -> None:
    members = Members(directory, no_tls)
    await members.refresh()
    one = members.named("one")
    assert one is not None
    directory.dies("one")
    await members.refresh()
    assert not one.alive
    # It was lost before the database went away, and stays so.
    for directory.away in (True, False):
        await members.refresh()
    assert not one.alive
    await members.close()

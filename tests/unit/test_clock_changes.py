"""Who follows the host's clock is told of each change of it."""

import logging
from datetime import timedelta

import pytest

from orchestrator.ground.clock_changes import ClockChanges


def test_each_listener_learns_of_it(caplog: pytest.LogCaptureFixture) -> None:
    changes = ClockChanges()
    seen: list[timedelta] = []

    def fail(_forward: timedelta) -> None:
        raise RuntimeError

    changes.on_change(fail)
    changes.on_change(seen.append)
    with caplog.at_level(logging.ERROR):
        changes.announce(timedelta(hours=1))
    assert seen == [timedelta(hours=1)]
    assert "not followed" in caplog.text


async def test_it_can_be_closed_twice() -> None:
    changes = ClockChanges()
    changes.start()
    changes.close()
    changes.close()

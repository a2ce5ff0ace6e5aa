"""What the tests' own servers say about sessions that a failed test has left open."""

from pathlib import Path
from typing import Self

import pytest

from tests.support import leaks
from tests.support.leaks import devices_below
from tests.support.server import leaving_nothing


async def leave_one(image: str, seen: list[str]) -> None:
    """Leaves a session open; `seen` gets its container and its directory's parent."""
    async with leaving_nothing(PADDOCK_IMAGE=image) as server:
        await server.ok("POST", "/api/sessions", {})
        seen += [*leaks.containers(server.state_dir), str(server.state_dir / "sandboxes")]


async def test_a_session_that_is_left_open_is_named_and_goes(sandbox_image: str) -> None:
    seen: list[str] = []
    with pytest.raises(AssertionError) as failed:
        await leave_one(sandbox_image, seen)
    name, sandboxes = seen
    assert name in str(failed.value)
    assert sandboxes in str(failed.value)
    client = leaks.engine_client()
    try:
        assert client.containers(all=True, filters={"name": [name.lstrip("/")]}) == []
    finally:
        client.close()


class BusyEvents:
    """A socket on which others' events come, one a second of its clock."""

    now = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def bind(self, address: tuple[int, int]) -> None:
        """Does nothing."""

    def settimeout(self, seconds: float) -> None:
        """Does nothing: something comes before."""

    def recv(self, size: int) -> bytes:
        """The next event."""
        self.now += 1
        assert self.now < 100, "it still waits"
        return b"change"


def test_a_device_is_not_awaited_for_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The limit is one for all events, however many come."""
    events = BusyEvents()
    monkeypatch.setattr(leaks, "_attached_below", lambda directory: ["loop9"])
    monkeypatch.setattr(leaks, "_mounted_devices", set)
    monkeypatch.setattr("tests.support.leaks.socket.socket", lambda *kind: events)
    monkeypatch.setattr("tests.support.leaks.time.monotonic", lambda: events.now)
    assert devices_below(tmp_path, 10) == ["loop9"]

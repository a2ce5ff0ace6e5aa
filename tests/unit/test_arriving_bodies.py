"""What has arrived of a body is read without a time limit of its own."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from api.http.body import BODY_PACE, arriving


class _Content:
    """A body of which some parts are here, and others come."""

    def __init__(self, here: list[bytes], coming: list[bytes]) -> None:
        self.here, self.coming = here, coming

    def is_eof(self) -> bool:
        return not self.coming

    def read_nowait(self, _most: int) -> bytes:
        return self.here.pop(0) if self.here else b""

    async def read(self, most: int) -> bytes:
        found = self.here.pop(0) if self.here else b""
        await asyncio.sleep(0)
        return found or self.coming.pop(0)


@pytest.mark.parametrize(
    ("here", "coming", "waits"),
    [([], [], 0), ([b"a", b"b"], [], 0), ([b"a"], [b"b"], 2), ([], [b"a", b"b", b""], 3)],
)
async def test_only_what_comes_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, here: list[bytes], coming: list[bytes], waits: int
) -> None:
    whole, limits = b"".join([*here, *coming]), 0
    timeout = asyncio.timeout

    def counting(seconds: float) -> asyncio.Timeout:
        nonlocal limits
        limits += 1
        return timeout(seconds)

    monkeypatch.setattr("api.http.body.asyncio.timeout", counting)
    request = cast(Any, SimpleNamespace(content=_Content(here, coming)))
    found = b"".join([chunk async for chunk in arriving(request, BODY_PACE)])
    assert (found, limits) == (whole, waits)

"""What a tool says, searched for the session's secrets once: for its hashes and its evidence."""

import hashlib
from collections.abc import Awaitable, Callable

from sandbox_agent.redaction import RedactedStream, Redactor, Span, Window

Search = Callable[[Window], Awaitable[list[Span]]]


class Said:
    """What one terminal's tool says. One call at a time; one that fails has lost nothing."""

    def __init__(
        self, keep: Callable[[bytes], None], redactor: Callable[[], Redactor], search: Search
    ) -> None:
        """`keep` gets what `redactor` leaves of it; `search` finds what that cuts.

        What `search` raises comes out of every call.
        """
        self._keep = keep
        self._stream = RedactedStream(redactor)
        self._search = search
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        """`sha256:…` of what was kept since `begin`."""
        return f"sha256:{self._hash.hexdigest()}"

    def begin(self) -> None:
        """What follows is hashed anew."""
        self._hash = hashlib.sha256()

    async def feed(self, data: bytes) -> None:
        """It said more; what could be part of a secret is kept back for now."""
        self._stream.add(data)
        await self._release(self._stream.window())

    async def finish(self) -> None:
        """Keeps the rest: what follows is no part of the same secret."""
        await self._release(self._stream.window(last=True))

    async def _release(self, window: Window | None) -> None:
        if window is not None:
            said = self._stream.release(window, await self._search(window))
            self._hash.update(said)
            self._keep(said)

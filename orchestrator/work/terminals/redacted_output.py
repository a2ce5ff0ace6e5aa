"""A tool's output, searched for the session's secrets once, for its hashes and its evidence."""

import hashlib
from collections.abc import Awaitable, Callable

from sandbox_agent.decide.escapes import Span
from sandbox_agent.decide.redaction import RedactedStream, Redactor, Window

Search = Callable[[Window], Awaitable[list[Span]]]


class RedactedOutput:
    """One terminal's output. Allows one call at a time; a failed call loses nothing."""

    def __init__(
        self, keep: Callable[[bytes], None], redactor: Callable[[], Redactor], search: Search
    ) -> None:
        """`keep` receives the output without what `redactor` removes; `search` finds that.

        Every call raises the errors of `search`.
        """
        self._keep = keep
        self._stream = RedactedStream(redactor)
        self._search = search
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        """`sha256:…` of the output kept since `begin`."""
        return f"sha256:{self._hash.hexdigest()}"

    def begin(self) -> None:
        """Starts a new hash."""
        self._hash = hashlib.sha256()

    async def feed(self, data: bytes) -> None:
        """Adds output; what could be part of a secret is held back for now."""
        self._stream.add(data)
        await self._release(self._stream.window())

    async def finish(self) -> None:
        """Keeps the rest: later output is not part of the same secret."""
        await self._release(self._stream.window(last=True))

    async def _release(self, window: Window | None) -> None:
        if window is not None:
            data = self._stream.release(window, await self._search(window))
            self._hash.update(data)
            self._keep(data)

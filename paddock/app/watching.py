"""Who is told about a session's use and end."""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from paddock.app.session import AppSession


class Watcher(Protocol):
    """What a session tells its app."""

    def touched(self, session: "AppSession") -> None:
        """It is used."""

    def ran(self, session: "AppSession") -> None:
        """A run has ended, and was not interrupted."""

    async def closed(self, session: "AppSession") -> None:
        """It is closed."""


class Unwatched:
    """For sessions that nobody comes back to."""

    def touched(self, session: "AppSession") -> None:
        """Nothing is due."""

    def ran(self, session: "AppSession") -> None:
        """Nothing is saved."""

    async def closed(self, session: "AppSession") -> None:
        """Nothing is left."""

"""Unpacks a tar or zip archive beneath a directory, and reports what was written."""

import contextlib
from collections.abc import Callable
from typing import Any

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.files.archives.tree import Tree
from sandbox_agent.files.archives.untar import Untar
from sandbox_agent.files.places import Place
from sandbox_agent.files.refusals import refusal


class Unpacking:
    """Unpacks an archive that arrives in pieces of any size; it stops at the first failure."""

    def __init__(
        self, place: Place, path: str, kind: str, most_bytes: int, cut: Callable[[str], str]
    ) -> None:
        """`kind` is tar or zip. Raises: OSError."""
        self._tree = Tree(place, path, most_bytes, cut)
        self._path = path
        self._failure: AgentError | None = None
        if kind == "tar":
            self._archive: Any = Untar(self._tree)
        else:
            from sandbox_agent.files.archives.unzip import (
                Unzip,  # imported late: most archives are tar
            )

            self._archive = Unzip(self._tree, place)

    def push(self, data: bytes) -> None:
        """Takes the next bytes. Raises: AgentError, which also says what was written before."""
        self._guarded(lambda: self._archive.push(data))

    def finish(self) -> bool:
        """Unpacks what is left, after the last bytes; returns False if it must be called again.

        Raises: AgentError, which also says what was written before.
        """
        return bool(self._guarded(self._archive.finish))

    def members(self) -> dict[str, Any]:
        """What was written so far, as events have it."""
        tally = self._tree.tally
        return tally.members() | tally.skipped.members()

    def news(self) -> dict[str, Any]:
        """Like `members`, but only with the paths that no earlier call returned."""
        tally = self._tree.tally
        return tally.news() | tally.skipped.members()

    def stop(self) -> None:
        """Gives new directories their modes and times, although no more bytes come."""
        with contextlib.suppress(AgentError, OSError):  # the caller reports why unpacking ends
            self._tree.settle()

    def close(self) -> None:
        """Releases everything."""
        self._archive.close()
        self._tree.close()

    def _guarded(self, step: Callable[[], Any]) -> Any:
        if self._failure is not None:
            raise self._failure
        try:
            return step()
        except OSError as error:
            failure = refusal(error, self._path)
        except AgentError as error:
            failure = error
        except MemoryError:
            failure = AgentError("too_large", "the archive needs too much memory")
        self.stop()
        message = f"{failure.message}; {self._tree.tally.before()}"
        self._failure = AgentError(failure.code, message, failure.rule)
        raise self._failure

"""The commands that a session remembers: those that run, and the latest that have ended."""

from collections.abc import Iterator, MutableMapping

from orchestrator.state.command import Command
from sandbox_agent.decide.protocol import MOST_STORED

# Ended commands that a session remembers, in addition to running ones.
MOST_ENDED = 64


class CommandHistory(MutableMapping[str, Command]):
    """Commands by their ids, in the order in which they were added.

    Besides those that are not settled, the latest settled ones are kept, and the latest ones with
    stored output. Adding a command, and asking what runs, costs what is unsettled, however many are
    remembered.
    """

    def __init__(self) -> None:
        self._known: dict[str, Command] = {}
        # Including some that have settled since somebody last asked.
        self._unsettled: dict[str, Command] = {}
        # The latest of them, in the order in which they were found to be settled.
        self._settled: dict[str, Command] = {}
        self._stored: dict[str, Command] = {}

    def __getitem__(self, command_id: str) -> Command:
        return self._known[command_id]

    def __setitem__(self, command_id: str, command: Command) -> None:
        """Adds a command, or one again that is not settled any more; forgets what is too old."""
        self._settled.pop(command_id, None)
        self._stored.pop(command_id, None)
        self._known[command_id] = self._unsettled[command_id] = command
        self._settle()

    def __delitem__(self, command_id: str) -> None:
        del self._known[command_id]
        for kept in (self._unsettled, self._settled, self._stored):
            kept.pop(command_id, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    @property
    def unsettled(self) -> list[Command]:
        """The commands that run, or whose evidence is still being written."""
        self._settle()
        return list(self._unsettled.values())

    def _settle(self) -> None:
        for command in [each for each in self._unsettled.values() if each.settled]:
            del self._unsettled[command.id]
            self._settled[command.id] = command
            if command.stored:
                self._stored[command.id] = command
        self._forget(self._settled, self._stored, MOST_ENDED)
        self._forget(self._stored, self._settled, MOST_STORED)

    def _forget(self, kept: dict[str, Command], others: dict[str, Command], most: int) -> None:
        """Reduces `kept` to its latest; what is not among the `others` either is forgotten."""
        while len(kept) > most:
            oldest = next(iter(kept))
            del kept[oldest]
            if oldest not in others:
                del self._known[oldest]

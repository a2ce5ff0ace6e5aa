"""The latest commands of a session, from their records: an earlier control plane ran them."""

import asyncio
from typing import Any

from orchestrator.ground.store.database import Database
from orchestrator.record.audit import query, recorded_work
from orchestrator.record.audit.gaps import lost_end
from orchestrator.state.command import Command, CommandExit, exit_of
from orchestrator.state.command_history import CommandHistory
from orchestrator.state.session import Session

# Commands that a session keeps at a start.
_COMMANDS = 64
# Each was caused by a sandbox that hung or died.
_GAPS = 1000


class RecordedCommands:
    """Gives sessions of an earlier control plane the commands that it ran.

    Sessions that run need theirs at once. Those of ended sessions are read when somebody asks, so
    that a start does not read what most likely nobody does.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        # Keys of ended sessions whose commands are not read yet.
        self._unread: set[str] = set()

    def leave(self, session: Session) -> None:
        """Leaves the commands of an ended session on record until somebody asks for them."""
        self._unread.add(session.key)

    async def recall(self, session: Session) -> None:
        """Gives the session its commands if they were left on record. Raises: StoreError."""
        if session.key not in self._unread:
            return
        commands = await self._latest(session.key)
        if session.key in self._unread:  # nobody else was faster
            self._unread.remove(session.key)
            session.commands = commands

    async def take_up(self, session: Session) -> None:
        """Gives the session its commands now. Raises: StoreError."""
        session.commands = await self._latest(session.key)

    async def _latest(self, session_key: str) -> CommandHistory:
        """The commands, with their results as far as these are on record."""
        events = await recorded_work.latest_commands(self._database, session_key, _COMMANDS)
        gaps = await query.events(self._database, session_key, operation="audit.gap", limit=_GAPS)
        commands = CommandHistory()
        for event in events:
            args = event["args"]
            if event["operation"] == "command.start":
                commands[args["command_id"]] = _command(event)
            elif args.get("command_id") in commands:
                commands[args["command_id"]].finish(_result(event))
        for gap in gaps:
            for command_id in gap["args"].get("commands", ()):
                if command_id in commands:
                    commands[command_id].finish(lost_end(gap["seq"], gap["hash"]))
        return commands


def _command(event: dict[str, Any]) -> Command:
    args = event["args"]
    argv = args["argv"] if isinstance(args.get("argv"), list) else [str(args.get("argv"))]
    command = Command(
        args["command_id"],
        argv,
        args.get("background") is True,
        event["time"],
        asyncio.get_running_loop().create_future(),
    )
    command.dispatched = True  # as far as is known
    return command


def _result(event: dict[str, Any]) -> CommandExit:
    rule = event["rule"] if event["decision"] == "deny" else None
    return exit_of(
        *(event["result"], event["error"], rule),
        *(event["duration_ms"], event["seq"], event["hash"], event["time"]),
    )

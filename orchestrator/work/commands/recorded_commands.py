"""The latest commands of a session, from their records: an earlier control plane ran them."""

import asyncio
from typing import Any

from orchestrator.ground.store.database import Database
from orchestrator.record.audit import query, recorded_work
from orchestrator.record.audit.gaps import lost_end
from orchestrator.state.command import Command, CommandExit, exit_of

# Commands that a session keeps at a start.
_COMMANDS = 64
# Each was caused by a sandbox that hung or died.
_GAPS = 1000


async def latest_commands(database: Database, session_key: str) -> dict[str, Command]:
    """The commands by their ids, with their results as far as these are on record."""
    commands: dict[str, Command] = {}
    for event in await recorded_work.latest_commands(database, session_key, _COMMANDS):
        args = event["args"]
        if event["operation"] == "command.start":
            commands[args["command_id"]] = _command(event)
        elif args.get("command_id") in commands:
            commands[args["command_id"]].finish(_result(event))
    for gap in await query.events(database, session_key, operation="audit.gap", limit=_GAPS):
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

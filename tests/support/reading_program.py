"""Runs in a container: commands of a session that may read its manifest's files only.

Its argument is a JSON object: `level`, `mode` (null: no manifest), `files` of the workspace (path:
text), `links` (path: target), `hard` links (path: existing path), `entries`, `directories`,
`writes`, and `commands` (lists of words), which run one after another. `broker_killed`: the broker
is killed when the first command has printed something. Prints {"outcomes": [[exit code, output]],
"reads": [events]} as JSON.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, "/opt/paddock")

from sandbox_agent.core.audit import EventBuffer
from sandbox_agent.core.loop import Loop
from sandbox_agent.core.output import Output
from sandbox_agent.decide.manifest import Consume
from sandbox_agent.decide.protocol import Configuration, Confinement
from sandbox_agent.enforce import kernel
from sandbox_agent.enforce.command_process import Plan
from sandbox_agent.enforce.guards.guards import Guards
from sandbox_agent.run.process import Command, Request

UID = 54321
WORKSPACE = Path("/workspace")
COMMANDS = ["cat", "cp", "find", "grep", "head", "ls", "pwd", "stat"]
IMAGE = ("/bin", "/sbin", "/lib", "/lib64", "/usr", "/opt", "/etc", "/proc", "/sys")
VARIABLES = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}


def main() -> None:
    given = json.loads(sys.argv[1])
    os.seteuid(UID)
    fill(given)
    os.seteuid(0)
    session = Session(given)
    session.run()
    print(json.dumps({"outcomes": session.outcomes, "reads": session.reads}))


def fill(given: dict[str, Any]) -> None:
    for name, text in given.get("files", {}).items():
        path = WORKSPACE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    for name, target in given.get("links", {}).items():
        (WORKSPACE / name).symlink_to(target)
    for name, target in given.get("hard", {}).items():
        (WORKSPACE / name).hardlink_to(WORKSPACE / target)


class Session:
    def __init__(self, given: dict[str, Any]) -> None:
        self.outcomes: list[tuple[int, str]] = []
        self.reads: list[dict[str, Any]] = []
        self._kill = given.get("broker_killed", False)
        self._commands = given["commands"][::-1]
        self._loop = Loop()
        self._events = EventBuffer("0" * 16, self._on_event)
        configuration = configured(given)
        self._guards = Guards(self._loop, configuration, kernel.probe(), self._events)
        self._guards.confine()

    def run(self) -> None:
        self._loop.after(0, self._next)
        self._loop.run()

    def _on_event(self, message: dict[str, Any]) -> None:
        event = message["params"]
        if event["operation"] == "read":
            members = ("decision", "rule", "command_id", "args", "error")
            self.reads.append({name: event[name] for name in members})
        self._loop.after(0, lambda: self._events.acknowledge(event["seq"]))

    def _next(self) -> None:
        if not self._commands:
            # What an ended command's broker still has to say comes within this time.
            self._loop.after(0.2, self._loop.stop)
            return
        argv = self._commands.pop()
        plan = Plan(argv[0], argv, VARIABLES, ".", [], str(WORKSPACE))
        name = f"c{len(self.outcomes)}"
        request = Request(name, plan, None, stdin_open=False, timeout_ms=60_000, background=False)
        output = Output(2**20, keep_tail=False)
        guard = self._guards.take(plan)

        def printed(_command: Command) -> None:
            if self._kill:
                self._kill = False
                os.kill(guard.pid, signal.SIGKILL)

        Command(self._loop, guard, request, output, printed, self._on_end).go()

    def _on_end(self, command: Command) -> None:
        chunks, _ = command.output.read(0, 2**20)
        text = b"".join(chunk.data for chunk in chunks).decode()
        self.outcomes.append((command.result()["exit_code"], text))
        self._guards.give_back(command.tree.guard)
        self._loop.after(0, self._next)


def configured(given: dict[str, Any]) -> Configuration:
    listed = given["level"] == "low"
    mode = given.get("mode", "hard_fail")
    consume = Consume(
        manifest_id="manifest",
        entries=tuple(given.get("entries", ())),
        directories=tuple(given.get("directories", ())),
        writes=tuple(given.get("writes", ())),
        baseline=() if listed else IMAGE,
        firewall_mode=mode or "hard_fail",
    )
    confinement = Confinement(
        paths=listed, read=[], execute=[], writable_code=not listed, ptrace=False, record_execs=True
    )
    return Configuration(
        level=given["level"],
        uid=UID,
        commands=COMMANDS if listed else None,
        environment=None,
        confinement=confinement,
        home="/nonexistent",
        cpus=1.0,
        memory_bytes=2**28,
        processes=100,
        output_bytes=2**20,
        max_running=4,
        consume=None if mode is None else consume,
    )


if __name__ == "__main__":
    main()

"""Runs as PID 1 of a container: two commands, guarded as on a kernel without scopes.

The first one leaves daemons behind (its source is the argument). With the argument `blind`, guards
find nothing of their trees, as if it always came too late. Prints the observations as JSON.
"""

import json
import os
import sys

sys.path.insert(0, "/opt/paddock")

from sandbox_agent.core.audit import EventBuffer
from sandbox_agent.core.limits import Meter
from sandbox_agent.core.loop import Loop
from sandbox_agent.core.output import Output
from sandbox_agent.decide.protocol import WORKSPACE_DIR
from sandbox_agent.enforce import guard_process
from sandbox_agent.enforce.command_process import Plan
from sandbox_agent.enforce.exec_record import ExecRecorder
from sandbox_agent.enforce.filters import seccomp
from sandbox_agent.enforce.guard import Guard
from sandbox_agent.enforce.guards.setup import Setup
from sandbox_agent.enforce.profile import Profile
from sandbox_agent.run.process import Command, Request

UID = 54321
DAEMONS = 5
BYSTANDER = ["sh", "-c", "echo up; read line"]


def processes() -> list[str]:
    """The commands of the session's processes but the bystander, zombies included."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        if os.stat(f"/proc/{name}").st_uid == UID:
            with open(f"/proc/{name}/cmdline") as file:
                found.append(file.read().replace("\0", " ")[:40])
    return [name for name in found if not name.startswith(BYSTANDER[0])]


def request(command_id: str, argv: list[str]) -> Request:
    plan = Plan(
        program=argv[0],
        argv=argv,
        env={"PATH": "/usr/bin:/bin"},
        cwd=".",
        inside=[],
        workspace="/tmp",
    )
    return Request(command_id, plan, b"", stdin_open=True, timeout_ms=None, background=True)


def guard(loop: Loop) -> Guard:
    machine = os.uname().machine
    wanted = seccomp.Filter(unnamed_memory=True, interfaces=True, ptrace=False, cookie=None)
    code = seccomp.program(machine, wanted)
    profile = Profile(machine, None, False, code, False, None, None)
    recorder = ExecRecorder(loop, EventBuffer("0" * 16, lambda _: None), UID)
    return Guard(Setup(UID, 100, profile, WORKSPACE_DIR), recorder, Meter())


def main() -> None:
    if "blind" in sys.argv:
        guard_process._SEARCH_SECONDS = 0.0
        guard_process._Guard._signal_tree = lambda *_: None  # type: ignore[method-assign]
    loop = Loop()
    report: dict[str, object] = {}

    def on_progress(command: Command) -> None:
        chunks, _ = command.output.read(0, 4096)
        if b"all" in b"".join(bytes(chunk.data) for chunk in chunks) and not report:
            # Without the first process of their command.
            report["daemons_before"] = len(processes()) - 1
            command.feed(b"", True, lambda _error: None)

    def on_end(command: Command) -> None:
        report["result"] = command.result()
        report["left"] = processes()
        report["bystander_lives"] = not bystander.ended
        bystander.cancel("over")

    source = sys.argv[1] + "print('all', flush=True); sys.stdin.read()"
    leader = request("a", ["python3", "-c", source, str(DAEMONS)])
    quiet = request("b", BYSTANDER)
    leaders: list[Command] = []

    def on_bystander(_command: Command) -> None:
        # Before it executes its program, its process has the name of this one, as a daemon has.
        if not leaders:
            output = Output(4096, keep_tail=False)
            leaders.append(Command(loop, guard(loop), leader, output, on_progress, on_end))
            leaders[0].go()

    bystander = Command(
        loop,
        guard(loop),
        quiet,
        Output(4096, keep_tail=False),
        on_bystander,
        lambda _: loop.stop(),
    )
    bystander.go()
    loop.run()
    print(json.dumps(report))


if __name__ == "__main__":
    main()

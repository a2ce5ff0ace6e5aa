"""Runs in a container: commands that are ordered to end as soon as they are started.

Prints the signals that ended them, by order, as JSON.
"""

import json
import signal
import sys
from collections.abc import Callable

sys.path.insert(0, "/opt/paddock")

from sandbox_agent.core.audit import EventBuffer
from sandbox_agent.core.limits import Meter
from sandbox_agent.core.loop import Loop
from sandbox_agent.core.output import Output
from sandbox_agent.decide.protocol import WORKSPACE_DIR, Configuration, Confinement
from sandbox_agent.enforce import kernel, profile
from sandbox_agent.enforce.command_process import Plan
from sandbox_agent.enforce.exec_record import ExecRecorder
from sandbox_agent.enforce.guard import Guard
from sandbox_agent.enforce.guards.setup import Setup
from sandbox_agent.run.process import Command, Request

UID = 54321
ROUNDS = 20
BOOT = Configuration(
    level="high",
    uid=UID,
    commands=None,
    environment=None,
    confinement=Confinement(
        paths=False, read=[], execute=[], writable_code=True, ptrace=False, record_execs=False
    ),
    home="/",
    cpus=1.0,
    memory_bytes=2**28,
    processes=64,
    output_bytes=4096,
    max_running=16,
)


def main() -> None:
    loop = Loop()
    confined = profile.build(BOOT, kernel.probe())
    recorder = ExecRecorder(loop, EventBuffer("0" * 16, lambda _: None), UID)
    guard = Guard(Setup(UID, 100, confined, WORKSPACE_DIR), recorder, Meter())
    plan = Plan("sleep", ["sleep", "1000"], {"PATH": "/usr/bin:/bin"}, ".", [], "/tmp")
    told: dict[str, Callable[[Command], object]] = {
        "TERM": lambda command: command.cancel("over"),
        "KILL": lambda command: command.kill("over"),
        "group": lambda command: command.send_signal(signal.SIGUSR1),
    }
    rounds = [name for name in told for _ in range(ROUNDS)]
    ended: dict[str, set[str]] = {name: set() for name in told}

    def next_round() -> None:
        if not rounds:
            loop.stop()
            return
        name = rounds.pop()

        def on_end(command: Command) -> None:
            ended[name].add(command.result()["signal"])
            loop.after(0, next_round)

        request = Request("c", plan, None, stdin_open=False, timeout_ms=None, background=False)
        output = Output(4096, keep_tail=False)
        command = Command(loop, guard, request, output, lambda _: None, on_end)
        command.go()
        told[name](command)

    loop.after(0, next_round)
    loop.run()
    print(json.dumps({name: sorted(signals) for name, signals in ended.items()}))


if __name__ == "__main__":
    main()

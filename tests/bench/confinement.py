"""The cost of the kernel's confinement for a command: guards with and without it, alternating."""

import json
from collections.abc import Sequence
from typing import Any

from docker import APIClient

from tests.bench.report import Result
from tests.bench.rounds import percentile
from tests.support.agent_code import AGENT_CODE

# Runs as PID 1 of a container: starts commands through guards of five kinds, one after another, as
# the agent does. Prints nanoseconds by kind, as JSON.
_PROGRAM = """
import json, os, struct, sys, time
sys.path.insert(0, "/opt/paddock")
from sandbox_agent.core.audit import EventBuffer
from sandbox_agent.enforce.command_process import Plan
from sandbox_agent.enforce import kernel, profile
from sandbox_agent.enforce.exec_record import ExecRecorder
from sandbox_agent.enforce.guard import Guard
from sandbox_agent.enforce.guards.setup import Setup
from sandbox_agent.core.limits import Meter
from sandbox_agent.core.loop import Loop
from sandbox_agent.core.output import Output
from sandbox_agent.run.process import Command, Request
from sandbox_agent.decide.protocol import WORKSPACE_DIR, Configuration, Confinement

ROUNDS = int(sys.argv[1])
ALLOW = struct.pack("<HBBI", 6, 0, 0, 0x7FFF0000)
NAMES = ["cat", "cp", "find", "grep", "head", "ls", "mkdir", "mv", "pwd", "rm", "stat", "true"]

class Older(kernel.Kernel):
    truncation = mdwe = False

def built(paths, record, kind=kernel.Kernel):
    confinement = Confinement(paths, [], [], not paths, False, record)
    boot = Configuration("low", 54321, NAMES, [], confinement, "/", 1.0, 2**28, 64, 2**20, 16)
    return profile.build(boot, kind(*kernel.probe()))

confined = built(True, True)
bare = confined._replace(ruleset=None, code=ALLOW, mdwe=False, cookie=None)
loop, meter = Loop(), Meter()
events = EventBuffer("0" * 16, lambda message: None)
recorder = ExecRecorder(loop, events, 54321)

def guard(kind):
    return Guard(Setup(54321, 100, kind, WORKSPACE_DIR), recorder, meter)

# By bare names, because only then processes with and without reports are started in the same way.
TRUE, NESTED = ["true"], ["sh", "-c", "exec /bin/true"]
sides = {
    "confined": (guard(confined), TRUE),
    "bare": (guard(bare), TRUE),
    "substitutes": (guard(built(True, True, Older)), TRUE),
    "recorded": (guard(built(False, True)), NESTED),
    "unrecorded": (guard(built(False, False)), NESTED),
}
taken = {name: [] for name in sides}
order = [name for _ in range(ROUNDS) for name in sides]

def run_next():
    events.acknowledge(2**40)
    if not order:
        loop.stop()
        return
    name = order.pop()
    kind, argv = sides[name]
    plan = Plan(argv[0], argv, {"PATH": "/usr/bin:/bin"}, ".", [], "/tmp")
    began = time.perf_counter_ns()

    def ended(command):
        taken[name].append(time.perf_counter_ns() - began)
        assert command.result()["exit_code"] == 0, (name, command.result())
        run_next()

    request = Request("c", plan, None, False, None, False)
    Command(loop, kind, request, Output(4096, False), lambda c: None, ended).go()

loop.after(0, run_next)
loop.run()
print(json.dumps({name: values[5:] for name, values in taken.items()}))
"""


def confinement_costs(client: APIClient, image: str, rounds: int) -> list[Result]:
    """The time that Landlock, the filter and denied writable code add, and that of exec records.

    Also that of the filter's checks instead of a newer kernel's own.
    """
    taken = {
        name: [value / 1e6 for value in values]
        for name, values in json.loads(_run(client, image, rounds)).items()
    }
    adds, record = "confinement adds to `true`", "a record adds to an exec"
    older = "older kernels' filters add to `true`"
    return [
        _added(adds, taken["confined"], "in a guard without", taken["bare"], 1.5),
        _added(record, taken["recorded"], "not recorded", taken["unrecorded"], 0.5),
        _added(older, taken["substitutes"], "with newer means", taken["confined"], 0.2),
    ]


def _added(
    what: str, ours: Sequence[float], floor: str, floor_figures: Sequence[float], target: float
) -> Result:
    """The difference of the medians, in milliseconds."""
    added = percentile(ours, 0.5) - percentile(floor_figures, 0.5)
    return Result(what, [max(0.0, added)], "ms", floor, floor_figures, target=target)


def _run(client: APIClient, image: str, rounds: int) -> str:
    host_config: Any = client.create_host_config(
        network_mode="none",
        cap_drop=["ALL"],
        cap_add=["SETUID", "SETGID"],
        security_opt=["no-new-privileges"],
        binds=[AGENT_CODE],
    )
    made = client.create_container(
        image,
        entrypoint=["python3", "-I", "-S", "-c", _PROGRAM, str(rounds)],
        host_config=host_config,
    )
    try:
        client.start(made["Id"])
        status = client.wait(made["Id"], timeout=120)["StatusCode"]
        said = client.logs(made["Id"]).decode()
        if status != 0:
            raise RuntimeError(f"the confinement could not be measured: {said[-500:]}")
        return str(said)
    finally:
        client.remove_container(made["Id"], v=True, force=True)

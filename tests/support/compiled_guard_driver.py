"""Runs in a container with the compiled guard: wrong plans, and guards that end early.

Prints what the guards reported, by case, as JSON.
"""

import errno
import json
import os
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from unittest.mock import patch

sys.path.insert(0, "/opt/paddock")

from sandbox_agent.core.audit import EventBuffer
from sandbox_agent.core.limits import Meter
from sandbox_agent.core.loop import Loop
from sandbox_agent.decide.protocol import WORKSPACE_DIR, Configuration, Confinement
from sandbox_agent.enforce import kernel, notify, profile, spawn
from sandbox_agent.enforce.command_process import Pipes, Plan
from sandbox_agent.enforce.exec_record import ExecRecorder
from sandbox_agent.enforce.filters import seccomp
from sandbox_agent.enforce.guard import Guard
from sandbox_agent.enforce.guards import compiled
from sandbox_agent.enforce.guards.setup import Setup

UID = 54321
BOOT = Configuration(
    level="high",
    uid=UID,
    commands=None,
    environment=None,
    confinement=Confinement(
        paths=False, read=[], execute=[], writable_code=True, ptrace=False, record_execs=True
    ),
    home="/",
    cpus=1.0,
    memory_bytes=2**28,
    processes=64,
    output_bytes=4096,
    max_running=16,
)
TRUE = Plan("/bin/true", ["true"], {"A": "1"}, ".", [("x", True)], "/tmp")
WHOLE = compiled.document(TRUE)
TOP = "/tmp/top"
LINKS = {
    **{"in": "deep/file", "into": "deep", "up": "deep/../deep/er/..", "out": "/etc/hostname"},
    **{"over": "../../etc", "gone": "nowhere", "new": "nowhere/../..", "a": "b", "b": "a"},
    **{"deep/back": "../deep/er", "slash": "deep/", "top": ".", "self": "self/x"},
    **{f"n{i}": f"n{i - 1}" for i in range(1, 45)},
    "n0": "deep",
}
PATHS = [
    *LINKS,
    *(
        "deep",
        "deep/er",
        ".",
        "",
        "..",
        "/etc",
        "/tmp/top/deep",
        "deep/..",
        "deep/../..",
        "deep//er/",
    ),
    *("in/", "into/", "into/file", "into/../into/file", "over/passwd", "missing", "missing/x"),
    *("missing/../deep", "gone/x", "new/x", "deep/file/x", "a/x", "deep/back/../../..", "x" * 300),
    *("top/" * 30 + "deep", "top/" * 45 + "deep", "deep/../" * 400, "out/x", "deep/back/", "n39/x"),
]
HEAD = struct.Struct("<IIII")
REFUSED = {
    "nothing": b"",
    "counts only": HEAD.pack(1, 0, 0, 0),
    "no end": WHOLE[:-1],
    "a word less": WHOLE.rpartition(b"\0")[0].rpartition(b"\0")[0] + b"\0",
    "a word more": WHOLE + b"x\0",
    "no program's name": HEAD.pack(0, 1, 1, 0) + WHOLE[16:],
    "more words than bytes": HEAD.pack(*[2**32 - 1] * 3, 0) + WHOLE[16:],
    "half a terminal": HEAD.pack(1, 1, 1, 2) + WHOLE[16:],
    "too many words": HEAD.pack(2**20, 1, 0, 0) + b"\0" * (2**20 + 4),
    "too long": HEAD.pack(1, 0, 0, 0) + b"\0\0\0" + b"x" * 2**24 + b"\0",
    "a NUL in a word": compiled.document(TRUE._replace(argv=["a\0b"])),
}


class Steps(Loop):
    """A loop that is served by hand."""

    def step(self) -> None:
        """Serves what is ready, or becomes so soon."""
        for key, events in self._selector.select(0.05):
            key.data(events)


class Driver:
    """Makes guards and reads what they report."""

    def __init__(self) -> None:
        self.loop = Steps()
        self._confined = profile.build(BOOT, kernel.probe())
        assert compiled.serves(self._confined)
        self._recorder = ExecRecorder(self.loop, EventBuffer("0" * 16, lambda _: None), UID)

    def guard(self, processes: int = 100, *, in_c: bool = True) -> Guard:
        setup = Setup(UID, processes, self._confined, WORKSPACE_DIR, compiled=in_c)
        return Guard(setup, self._recorder, Meter())

    def prepare(self, guard: Guard, document: bytes = WHOLE) -> None:
        """Gives it a command with that document as its plan."""
        with patch.object(compiled, "document", return_value=document):
            self.start(guard, TRUE)

    def start(self, guard: Guard, plan: Plan) -> None:
        """Gives it a command."""
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        guard.prepare("c", plan, Pipes(null, null, null))
        os.close(null)

    def reports(self, guard: Guard, wanted: int) -> list[list[str]]:
        """The words of that many reports."""
        got: list[list[str]] = []
        while len(got) < wanted:
            try:
                got.append(guard.receive().decode().split())
            except BlockingIOError:
                self.loop.step()
        return got

    def refuse(self, guard: Guard, number: int) -> None:
        """Has the call of execve that waits fail with that error."""
        held = guard._source.held
        assert held is not None
        assert held.call is not None
        notify.refuse(*held.call, number)
        guard._source.held = None

    def wait_until_held(self, guard: Guard) -> None:
        """Waits until the command's process waits in its call of execve."""
        source = guard._source
        while source.held is None or source.held.call is None:
            try:
                guard.receive()
            except BlockingIOError:
                self.loop.step()


def lay_out(top: str) -> None:
    """Files, and links that stay, that lead out, that have no target and that have no end."""
    os.makedirs(f"{top}/deep/er")
    with open(f"{top}/deep/file", "w"):
        pass
    for name, target in LINKS.items():
        os.symlink(target, f"{top}/{name}")


def decisions(driver: Driver, *, in_c: bool) -> dict[str, list[list[str]]]:
    """What a guard reports about each operand and each directory."""
    guard = driver.guard(in_c=in_c)
    plain = TRUE._replace(workspace=TOP, inside=[])
    plans = {
        f"operand {path} {follow}": plain._replace(inside=[("deep", True), (path, follow)])
        for path in PATHS
        for follow in (True, False)
    }
    plans |= {f"directory {path}": plain._replace(cwd=path) for path in PATHS}
    said = {}
    for name, plan in plans.items():
        driver.start(guard, plan)
        guard.go()
        first = driver.reports(guard, 1)[0]
        said[name] = [first if first[0][0] in "XD" else first[:1]]
        if first[0][0] in "XD":
            driver.reports(guard, 1)
    guard.close()
    return said


def waits(pid: int) -> bool:
    """Whether the process sleeps: it has reported and freed what it needed for that."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "S"


def limit_memory(guard: Guard, more: int) -> None:
    """Leaves it that many bytes of address space beyond what it has once it waits again."""
    while not waits(guard.pid):
        os.sched_yield()
    with open(f"/proc/{guard.pid}/statm") as file:
        pages = int(file.read().split()[0])
    most = pages * resource.getpagesize() + more
    resource.prlimit(guard.pid, resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


def without_memory(driver: Driver, *, in_c: bool) -> dict[str, list[list[str]]]:
    """What a guard reports when memory is refused, at each place, and about the next command."""
    said = {}
    guard = driver.guard(in_c=in_c)
    # It has begun once it has run a command.
    driver.start(guard, TRUE)
    guard.go()
    driver.reports(guard, 1)
    # The vectors of many words are larger than the document.
    # Nearly the longest document: what compiling its modules has left free is smaller.
    plans = {"plan": (TRUE._replace(argv=["x" * (15 * 2**20)]), 0)}
    plans["words"] = (TRUE._replace(argv=["x"] * (2**20 - 9)), 2**22)
    for name, (plan, more) in plans.items():
        limit_memory(guard, more)
        driver.start(guard, plan)
        guard.go()
        said[name] = driver.reports(guard, 2)
        resource.prlimit(guard.pid, resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    driver.start(guard, TRUE)
    driver.wait_until_held(guard)
    driver.refuse(guard, errno.ENOMEM)
    said["program"] = [
        words[:1] if words[0][0] == "E" else words for words in driver.reports(guard, 2)
    ]
    driver.start(guard, TRUE)
    guard.go()
    said["then"] = [words[:1] for words in driver.reports(guard, 1)]
    guard.close()
    return said


def refuse_processes() -> None:
    """From now on, `vfork` fails with ENOMEM in this process and in those that it starts."""
    vfork = 58
    steps = [
        *((0x20, 0, 0, 0), (0x15, 0, 1, vfork)),  # load the call's number; is it that?
        *((0x06, 0, 0, 0x50000 | errno.ENOMEM), (0x06, 0, 0, 0x7FFF0000)),  # fail; permit
    ]
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    assert seccomp.install(os.uname().machine, code, listen=False) is None


def without_processes(driver: Driver, *, in_c: bool) -> list[list[str]]:
    """What a guard reports when memory is refused to a new process."""

    def fork_exec(*_arguments: object) -> int:
        raise OSError(errno.ENOMEM, "refused")

    with patch.object(spawn, "_fork_exec", fork_exec):
        guard = driver.guard(in_c=in_c)
        driver.start(guard, TRUE)
        guard.go()
        said = driver.reports(guard, 2)
    guard.close()
    return said


def main() -> None:
    driver = Driver()
    lay_out(TOP)
    said: dict[str, object] = {
        "in c": decisions(driver, in_c=True),
        "in python": decisions(driver, in_c=False),
        "no memory in c": without_memory(driver, in_c=True),
        "no memory in python": without_memory(driver, in_c=False),
    }
    guard = driver.guard()
    for name, document in REFUSED.items():
        driver.prepare(guard, document)
        said[name] = driver.reports(guard, 2)
    driver.prepare(guard)
    guard.go()
    said["then"] = [words[:2] for words in driver.reports(guard, 1)]
    guard.close()
    crowded = driver.guard(processes=0)
    # Another process of the user, as the limit counts those that are there before.
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=UID, group=UID, extra_groups=[]):
        driver.prepare(crowded)
        crowded.go()
        said["no room"] = [words[:2] for words in driver.reports(crowded, 2)]
    crowded.close()
    ends: dict[str, Callable[[Guard], None]] = {
        "dropped": Guard.close,
        "killed": lambda each: each.kill(lambda: None),
    }
    for end in ends.values():
        early = driver.guard()
        driver.prepare(early)
        driver.wait_until_held(early)
        end(early)
    refuse_processes()
    for name, in_c in (("c", True), ("python", False)):
        said[f"no process in {name}"] = without_processes(driver, in_c=in_c)
    # Each guard ends, and what it left behind is the child of this process then.
    while True:
        try:
            os.wait()
        except ChildProcessError:
            break
    said["left"] = [name for name in os.listdir("/proc") if name.isdecimal() and name != "1"]
    print(json.dumps(said))


if __name__ == "__main__":
    main()

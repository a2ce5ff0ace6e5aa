"""What the kernel holds the commands of one sandbox to: built once, from the boot file."""

import os
from typing import NamedTuple

from sandbox_agent.baseline import BASELINE, DEVICES
from sandbox_agent.builtin import NAMES as BUILTINS
from sandbox_agent.confine import landlock, seccomp, syscalls
from sandbox_agent.confine.landlock import CHANGE, EXECUTE, READ, READ_FILE, WRITE_FILE, Rule
from sandbox_agent.confine.libraries import Libraries
from sandbox_agent.programs import find_program
from sandbox_agent.protocol import WORKSPACE_DIR, Boot

_CHANGED = (WORKSPACE_DIR, "/tmp")  # noqa: S108 - the sandbox's own


class Profile(NamedTuple):
    """`ruleset` is Landlock's, and `code` the filter's; None where there is none.

    `executable` lists the programs, and directories of programs, that can be executed;
    None: any. `cookie` marks what the guard itself executes; None: nothing is reported.
    """

    machine: str
    ruleset: int | None
    scoped: bool
    code: bytes
    writable_code: bool
    executable: frozenset[str] | None
    cookie: tuple[int, int] | None


class Tool(NamedTuple):
    """What one tool may do besides what its level's commands may.

    `programs` are names or absolute paths of what it executes, or of directories with such;
    `read` and `write` absolute paths of files or directories. `ptrace`: it may trace what it
    started.
    """

    programs: list[str]
    read: list[str]
    write: list[str]
    writable_code: bool
    ptrace: bool


class ConfinementError(Exception):
    """The kernel, or the runtime between it and us, can't hold commands to what the level says."""


NO_TOOL = Tool([], [], [], writable_code=False, ptrace=False)


def build(boot: Boot, abi: int, tool: Tool = NO_TOOL) -> Profile:
    """The profile of the sandbox's level, or that of a tool at it. Raises: ConfinementError."""
    try:
        return _build(boot, abi, tool)
    except OSError as error:
        raise ConfinementError(f"{error.strerror}: {error.filename or 'ruleset'}") from error


def _build(boot: Boot, abi: int, tool: Tool) -> Profile:
    machine = os.uname().machine
    if not seccomp.available(machine):
        raise ConfinementError("the kernel has no system call filters with notification")
    wanted = boot.confinement
    if wanted.paths and not abi:
        raise ConfinementError("the kernel has no Landlock")
    if not wanted.writable_code and not syscalls.can_deny_writable_code():
        raise ConfinementError("the kernel can't deny writable code: it must be 6.3 or later")
    rules, executable = path_rules(boot, tool) if wanted.paths else (None, None)
    cookie = _cookie() if wanted.record_execs else None
    wanted_filter = seccomp.Filter(not wanted.paths, wanted.ptrace or tool.ptrace, cookie)
    return Profile(
        machine=machine,
        ruleset=landlock.ruleset(abi, rules),
        scoped=abi >= landlock.SCOPES_ABI,
        code=seccomp.program(machine, wanted_filter),
        writable_code=wanted.writable_code or tool.writable_code,
        executable=executable,
        cookie=cookie,
    )


def path_rules(boot: Boot, tool: Tool = NO_TOOL) -> tuple[list[Rule], frozenset[str]]:
    """What may be done to which paths, and what of it is executable."""
    libraries = Libraries()
    for name in (*(boot.commands or ()), *tool.programs):
        program = None if name in BUILTINS else find_program(name)
        if program is not None and not os.path.isdir(program):
            libraries.add(program)
    directories = [path for path in tool.programs if os.path.isdir(path)]
    read = [*boot.confinement.read, *tool.read]
    execute = [*boot.confinement.execute, *directories]
    closure = libraries.closure
    rules = [Rule(path, READ_FILE) for path in sorted(closure.read - closure.executed)]
    rules += [Rule(path, READ_FILE | EXECUTE) for path in sorted(closure.executed)]
    rules += [Rule(path, READ) for path in (*BASELINE, *read)]
    rules += [Rule(path, READ | EXECUTE) for path in execute]
    rules += [Rule(path, READ_FILE | WRITE_FILE) for path in DEVICES]
    rules += [Rule(path, CHANGE) for path in (*_CHANGED, *boot.writable, *tool.write)]
    return rules, frozenset(closure.executed).union(map(os.path.realpath, execute))


def _cookie() -> tuple[int, int]:
    """Not to be guessed: whoever knows it executes unreported (but not what is not allowed)."""
    data = os.urandom(8)
    return int.from_bytes(data[:4], "little"), int.from_bytes(data[4:], "little")

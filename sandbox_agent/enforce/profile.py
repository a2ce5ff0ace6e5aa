"""What the kernel enforces on the commands of one sandbox; built once, from the configuration."""

import os
from collections.abc import Iterable
from typing import NamedTuple

from sandbox_agent.decide.baseline import BASELINE, DEVICES
from sandbox_agent.decide.command_words import BUILTINS
from sandbox_agent.decide.denials import Denials
from sandbox_agent.decide.manifest import Consume, ReadManifest, beneath
from sandbox_agent.decide.protocol import WORKSPACE_DIR, Configuration
from sandbox_agent.decide.writable_places import places
from sandbox_agent.enforce import landlock
from sandbox_agent.enforce.filters import read_filter, seccomp
from sandbox_agent.enforce.kernel import Kernel
from sandbox_agent.enforce.landlock import (
    CHANGE,
    EXECUTE,
    IOCTL_DEV,
    READ,
    READ_FILE,
    WRITE_FILE,
    Opened,
    Rule,
)
from sandbox_agent.enforce.libraries import Libraries
from sandbox_agent.enforce.programs import find_program
from sandbox_agent.enforce.reads import image_baseline, pack_files
from sandbox_agent.enforce.reads.image_baseline import BaselineError, ImageBaseline
from sandbox_agent.enforce.reads.pack_files import Held
from sandbox_agent.enforce.reads.read_profile import Reads

_TEMPORARY = "/tmp"  # noqa: S108 - private to the sandbox


class Root(NamedTuple):
    """The user namespace that commands enter, and what marks the call that enters it."""

    namespace: int
    entry: tuple[int, int]


class Profile(NamedTuple):
    """`ruleset` is Landlock's, and `code` is the filter's; None if there is none.

    `executable` lists the programs, and directories of programs, that may be executed; None means
    any. `mdwe`: the kernel itself denies writable code. `cookie` marks what the guard itself
    executes; None means that nothing is reported. `reads` is for the broker of a session that may
    read its manifest's files only. `mark` is for signals what `cookie` is for executions; without
    `scoped`, they are reported. `undisturbed`: no signal interrupts a call that is reported.
    `listened`: the agent is the listener of the filter. `root`: commands are root inside.
    """

    machine: str
    ruleset: int | None
    scoped: bool
    code: bytes
    mdwe: bool
    executable: frozenset[str] | None
    cookie: tuple[int, int] | None
    reads: Reads | None = None
    mark: tuple[int, int] | None = None
    undisturbed: bool = False
    listened: bool = True
    root: Root | None = None

    def close(self) -> None:
        """Closes its rulesets: a guard has its own copies."""
        for ruleset in (self.ruleset, self.reads and self.reads.ruleset):
            if ruleset is not None:
                os.close(ruleset)


class Tool(NamedTuple):
    """What one tool may do in addition to the commands of its level.

    `programs` are names or absolute paths of programs, or of directories of programs, that it
    executes. `read` and `write` are absolute paths of files or directories. `ptrace`: it may trace
    the processes that it started.
    """

    programs: list[str]
    read: list[str]
    write: list[str]
    writable_code: bool
    ptrace: bool


class ConfinementError(Exception):
    """The kernel, or the runtime in front of it, can't enforce the level on commands."""


NO_TOOL = Tool([], [], [], writable_code=False, ptrace=False)


def programs_of(commands: Iterable[str]) -> Libraries:
    """What these commands need of the image, which never changes. Raises: OSError."""
    libraries = Libraries()
    _add(libraries, commands)
    return libraries


def build(
    configuration: Configuration,
    kernel: Kernel,
    tool: Tool = NO_TOOL,
    programs: Libraries | None = None,
    held: Held | None = None,
    namespace: int | None = None,
) -> Profile:
    """The profile of the sandbox's level, or of a tool at that level.

    `programs` is what the level's commands need, if it is known. `held` has the files of the
    session's manifest; the first profile fills it. `namespace` is the user namespace of commands
    that are root inside; it stays the caller's. Raises: ConfinementError.
    """
    root = None if namespace is None else Root(namespace, _cookie())
    if configuration.root != (root is not None):
        raise ConfinementError("commands are root inside if they have a namespace, and only then")
    try:
        return _build(configuration, kernel, tool, programs, {} if held is None else held, root)
    except BaselineError as error:
        raise ConfinementError(str(error)) from None
    except OSError as error:
        raise ConfinementError(f"{error.strerror}: {error.filename or 'ruleset'}") from error


def _build(
    configuration: Configuration,
    kernel: Kernel,
    tool: Tool,
    programs: Libraries | None,
    held: Held,
    root: Root | None,
) -> Profile:
    machine = os.uname().machine
    wanted, consume = configuration.confinement, configuration.consume
    _check_kernel(kernel, configuration)
    image = ImageBaseline() if consume is None else image_baseline.load()
    if consume is not None:
        consume = consume._replace(baseline=(*consume.baseline, *image.read))
        configuration = configuration._replace(consume=consume)
    paths = _path_rights(configuration, kernel, tool, programs)
    cookie = _cookie() if wanted.record_execs or consume is not None else None
    mark = None if kernel.scopes or not kernel.notification else _cookie()
    listened = consume is None and kernel.notification
    writable_code = wanted.writable_code or tool.writable_code
    wanted_filter = seccomp.Filter(
        unnamed_memory=not wanted.paths,
        interfaces=not wanted.paths,
        ptrace=wanted.ptrace or tool.ptrace,
        # The broker of a session with a manifest reports executions.
        cookie=cookie if consume is None else None,
        writable_code=writable_code,
        listened=listened,
        brokered=consume is not None,
        signals=mark,
        mdwe=kernel.mdwe,
        truncation=kernel.truncation or not paths.confined,
        entry=None if root is None else root.entry,
    )
    reads = None
    if consume is not None and cookie is not None:
        manifest = _manifest(consume, paths)
        reads = Reads(
            ruleset=_ruleset(configuration, kernel, paths, held, Rule("/proc", READ | WRITE_FILE)),
            code=read_filter.program(machine, cookie, with_signals=mark is not None),
            manifest=manifest,
            denials=Denials(manifest, image.absent, image.refused),
            enforced=consume.enforced,
            recorded=wanted.record_execs,
            signals=mark is not None,
            truncation=wanted_filter.truncation,
        )
    return Profile(
        machine=machine,
        ruleset=_ruleset(configuration, kernel, paths, held),
        scoped=kernel.scopes,
        code=seccomp.program(machine, wanted_filter),
        mdwe=kernel.mdwe and not writable_code,
        executable=paths.executable,
        cookie=cookie,
        reads=reads,
        mark=mark,
        undisturbed=kernel.undisturbed,
        listened=listened,
        root=root,
    )


def _check_kernel(kernel: Kernel, configuration: Configuration) -> None:
    """Raises: ConfinementError if the kernel lacks what the session needs."""
    wanted, consume = configuration.confinement, configuration.consume
    if not kernel.notification:
        if "notification" not in configuration.without or wanted.record_execs or consume:
            raise ConfinementError("the kernel has no system call filters with notification")
        if not kernel.scopes and "scopes" not in configuration.without:
            raise ConfinementError("the kernel has no means to keep signals apart")
    if consume is not None and not kernel.undisturbed:
        raise ConfinementError(
            "the kernel can't answer calls undisturbed: it must be 5.19 or later"
        )
    if (wanted.paths or consume is not None) and not kernel.paths:
        raise ConfinementError("the kernel has no Landlock")
    if configuration.root and not (kernel.paths and kernel.scopes):
        raise ConfinementError("root inside needs Landlock with scopes")
    if configuration.root and (wanted.paths or consume is not None):
        raise ConfinementError("root inside can't be had with confined paths or a pack")


class _Paths(NamedTuple):
    """The rights that are denied unless a rule grants them, and the executable paths.

    `confined`: the rules name single paths, and not only where anything may be written.
    """

    rules: list[Rule]
    rights: int
    executable: frozenset[str] | None
    confined: bool


def _path_rights(
    configuration: Configuration, kernel: Kernel, tool: Tool, programs: Libraries | None
) -> _Paths:
    wanted, consume = configuration.confinement, configuration.consume
    executable: frozenset[str] | None = None
    rights, confined = landlock.handled(kernel), True
    if consume is not None and consume.enforced:
        rules, executable = consume_rules(configuration, consume, tool, programs)
    elif wanted.paths:
        rules, executable = path_rules(configuration, tool, programs)
    else:
        rules, rights, confined = write_rules(configuration, tool), landlock.WRITES, False
    if wanted.ptrace or tool.ptrace:
        rules.append(Rule("/proc", WRITE_FILE))  # debuggers write to memory through it
    return _Paths(rules, rights, executable, confined)


def _ruleset(
    configuration: Configuration, kernel: Kernel, paths: _Paths, held: Held, *more: Rule
) -> int | None:
    consume = configuration.consume
    opened: Iterable[Opened] = ()
    if consume is not None and consume.enforced:
        executable = not configuration.confinement.paths
        opened = pack_files.opened(consume, configuration.uid, executable=executable, held=held)
    return landlock.ruleset(kernel, [*paths.rules, *more], paths.rights, opened)


def _manifest(consume: Consume, paths: _Paths) -> ReadManifest:
    readable = (rule.path for rule in filter(_apart, paths.rules) if rule.access & READ_FILE)
    return ReadManifest(consume, readable)


def path_rules(
    configuration: Configuration, tool: Tool = NO_TOOL, programs: Libraries | None = None
) -> tuple[list[Rule], frozenset[str]]:
    """The rights for each path, and the paths that are executable."""
    libraries = Libraries(programs or programs_of(configuration.commands or ()))
    _check_apart(libraries.closure.read, configuration.workspace)
    _add(libraries, tool.programs)
    directories = [path for path in tool.programs if os.path.isdir(path)]
    read = [*configuration.confinement.read, *tool.read]
    execute = [*configuration.confinement.execute, *directories]
    closure = libraries.closure
    rules = [Rule(path, READ_FILE) for path in sorted(closure.read - closure.executed)]
    rules += [Rule(path, READ_FILE | EXECUTE) for path in sorted(closure.executed)]
    rules += [Rule(path, READ) for path in (*BASELINE, *read)]
    rules += [Rule(path, READ | EXECUTE) for path in execute]
    rules += [Rule(path, READ_FILE | WRITE_FILE) for path in DEVICES]
    changed = (configuration.workspace, _TEMPORARY, *configuration.writable, *tool.write)
    rules += [Rule(path, CHANGE) for path in changed]
    return rules, frozenset(closure.executed).union(map(os.path.realpath, execute))


def _check_apart(files: Iterable[str], workspace: str) -> None:
    """Raises: ConfinementError if the session could exchange a file that its commands execute."""
    for path in files:
        if beneath(path, {workspace}):
            raise ConfinementError(f"the level's commands need {path}, which the workspace covers")


def consume_rules(
    configuration: Configuration,
    consume: Consume,
    tool: Tool = NO_TOOL,
    programs: Libraries | None = None,
) -> tuple[list[Rule], frozenset[str] | None]:
    """The rights outside the workspace, of a session that is limited to a pack; None: any program.

    Nothing is granted that contains the workspace or is in it: `pack_files` opens what may be used
    there.
    """
    rules, executable = path_rules(configuration._replace(writable=()), tool, programs)
    if configuration.confinement.paths:
        rules += [Rule(path, READ) for path in consume.baseline]
        return list(filter(_apart, rules)), executable
    rules += [Rule(path, READ | EXECUTE) for path in consume.baseline]
    rules.append(Rule("/dev", CHANGE | IOCTL_DEV))
    return list(filter(_apart, rules)), None


def _apart(rule: Rule) -> bool:
    path = os.path.realpath(rule.path)
    return os.path.commonpath([path, WORKSPACE_DIR]) not in (path, WORKSPACE_DIR)


def _add(libraries: Libraries, names: Iterable[str]) -> None:
    for name in names:
        program = None if name in BUILTINS else find_program(name)
        if program is not None and not os.path.isdir(program):
            libraries.add(program)


def write_rules(configuration: Configuration, tool: Tool) -> list[Rule]:
    """Where commands may write if they may read and execute anything: not below /proc, for one."""
    others = places(None, configuration.writable)
    return [Rule(path, CHANGE) for path in (configuration.workspace, *others, *tool.write)]


def _cookie() -> tuple[int, int]:
    """Unguessable: a command that knew it could execute allowed programs unreported."""
    data = os.urandom(8)
    return int.from_bytes(data[:4], "little"), int.from_bytes(data[4:], "little")

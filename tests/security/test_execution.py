"""Running a program that the level does not list, or code that the session made itself."""

import pytest

from tests.support.attack import Attacks, numbers
from tests.support.attempts import attempt, attempts

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Attempts that may fail for other reasons: a hard link can't cross mounts, not every base image
# has perl, and the engine's filter may not know keys.
MAY_FAIL = {"hard link", "perl", "made executable with a key"}


@attempts(
    {
        "direct": "a program that is not listed, by its path",
        "by PATH": "… by its name, along the PATH",
        "slashes": "… by `//` and `/./` in its path",
        "dots": "… by a relative path with `..`",
        "/proc/self/root": "… through /proc/self/root",
        "symbolic link": "… through a symbolic link in the workspace",
        "hard link": "… through a hard link in the workspace",
        "O_PATH descriptor": "… by an O_PATH descriptor and /proc/self/fd",
        "change of directory": "… from its own directory, by descriptor",
        "loader": "… by the dynamic loader",
        "loader through a link": "… by a link to the dynamic loader",
        "loader --preload": "a library of the image, by the loader's `--preload`",
        "LD_PRELOAD": "… by LD_PRELOAD into an allowed program",
        "LD_AUDIT": "… by LD_AUDIT into an allowed program",
        "copy": "a copy of the program in the workspace",
        "find -exec": "the program, as an allowed program's `-exec`",
        "env": "… by `env`",
        "sh": "a shell, from inside an allowed program",
        "perl": "an interpreter, from inside an allowed program",
        "tar": "a program that runs others by an option",
    },
    layer="Landlock",
    levels="low medium",
)
async def test_forbidden_program(attacks: Attacks, level: str, name: str) -> None:
    (await attacks.report(level, "execs", "forbidden")).stopped(name)


@attempts(
    {
        "execveat of a descriptor": "the program, by execveat of a descriptor",
        "execveat in a directory": "… by execveat in its directory",
    },
    layer="seccomp",
    levels="low medium",
)
async def test_forbidden_program_at(attacks: Attacks, level: str, name: str) -> None:
    (await attacks.report(level, "execs", "forbidden")).stopped(name)


@attempts(
    {
        "program": "the session's own program in the workspace",
        "program through /proc": "… through /proc/self/root",
        "descriptor": "… by a descriptor and /proc/self/fd",
        "O_PATH descriptor": "… by an O_PATH descriptor",
        "execveat": "… by execveat",
        "loader": "… by the dynamic loader",
        "LD_PRELOAD": "the session's own library by LD_PRELOAD",
        "LD_AUDIT": "… by LD_AUDIT",
        "script": "a script with a shebang of a shell",
        "script of an allowed program": "a script with a shebang of an allowed program",
        "deleted file": "a program that has been deleted, by its descriptor",
        "unnamed file": "a program that never had a name (O_TMPFILE)",
    },
    layer="noexec mount, Landlock",
    levels="low medium",
)
@pytest.mark.parametrize("place", ["/workspace", "/tmp"])
async def test_program_of_ones_own(attacks: Attacks, level: str, name: str, place: str) -> None:
    (await attacks.report(level, "execs", "own", place)).stopped(name)


@attempts(
    {
        "memory file": "a program in memory (memfd_create), by /proc/self/fd",
        "memory file by execveat": "… by execveat",
    },
    layer="seccomp",
    levels="low medium",
)
async def test_program_in_memory(attacks: Attacks, level: str, name: str) -> None:
    (await attacks.report(level, "execs", "own", "/workspace")).stopped(name)


@attempts(
    {
        "mapped writable and executable": "memory that is writable and executable, by mmap",
        "made executable": "memory that was written, made executable by mprotect",
        "made writable and executable": "… made writable and executable",
        "made executable with a key": "… by pkey_mprotect",
        "heap": "code on the heap",
        "stack": "code on the stack",
        "switched off": "the protection switched off again by prctl",
    },
    layer="MDWE",
    levels="low medium",
)
async def test_code_of_ones_own(attacks: Attacks, level: str, name: str) -> None:
    (await attacks.report(level, "memory")).stopped(name)


@attempts(
    {
        "READ_IMPLIES_EXEC": "all memory executable, by personality",
        "memory file twice": "a memory file mapped twice, writable and executable",
        "SysV segment twice": "a SysV segment attached twice, writable and executable",
        "shared mapping twice": "a shared mapping, made writable in a second place",
        "shared with a child": "a shared mapping, made writable in a child",
        "/dev/zero twice": "a shared mapping of /dev/zero, made writable in a second place",
    },
    layer="seccomp",
    levels="low medium",
)
async def test_code_in_shared_memory(attacks: Attacks, level: str, name: str) -> None:
    (await attacks.report(level, "memory")).stopped(name)


@attempts(
    {
        "file in the workspace twice": "a file in the workspace mapped writable and executable",
        "file in /tmp twice": "a file in /tmp mapped writable and executable",
        "file made executable": "a written mapping of a file in /tmp made executable",
    },
    layer="noexec mount",
    levels="low medium",
)
async def test_code_in_a_file(attacks: Attacks, level: str, name: str) -> None:
    (await attacks.report(level, "memory")).stopped(name)


@attempts(
    {
        "/proc/self/mem": "the process's own code overwritten through /proc/self/mem",
        "/proc/thread-self/mem": "… through /proc/thread-self/mem",
    },
    layer="Landlock",
)
async def test_own_code_overwritten(attacks: Attacks, level: str, name: str) -> None:
    (await attacks.report(level, "memory")).stopped(name)


@pytest.mark.parametrize(
    ("arguments", "stopped"),
    [
        (("execs", "forbidden"), {"execveat of a descriptor", "execveat in a directory"}),
        (("execs", "own", "/workspace"), {"execveat", "memory file by execveat"}),
        (("execs", "own", "/tmp"), {"execveat", "memory file by execveat"}),
        (("memory",), {"READ_IMPLIES_EXEC", "/proc/self/mem", "/proc/thread-self/mem"}),
    ],
)
async def test_the_attempts_work_where_they_may(
    attacks: Attacks, arguments: tuple[str, ...], stopped: set[str]
) -> None:
    """At high any program may run, so only attempts that all levels deny fail."""
    report = await attacks.report("high", *arguments)
    assert report.refused.keys() - MAY_FAIL == stopped


@attempt(
    "an executable that changes in memory while it is checked",
    layer="Landlock",
    levels="low medium",
)
async def test_race_of_executables(attacks: Attacks, level: str) -> None:
    done = await attacks.run(level, "races", "exec", "/usr/local/bin/forbidden", "500")
    counted = numbers(done.stdout)
    assert counted["rounds"] >= 500
    assert counted["ran"] > 0
    assert counted["refused"] > 0
    assert counted["marked"] == 0

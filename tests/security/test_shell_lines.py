"""No line of a shell runs where commands are listed, and no output leaves the workspace."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.ground.errors import PermissionDeniedError, ValidationError
from tests.support.arsenal import Arsenal, held_in
from tests.support.attack import INSIDE, assert_refused
from tests.support.attempts import attempt, attempts, spellings
from tests.support.box import Box, Outcome

pytestmark = pytest.mark.asyncio(loop_scope="module")

Boxes = dict[str, Box]

# Each makes a file if any shell reads it, and names no program that a level lists.
_EFFECTS = (">marker", ": >marker", ">>marker", "{ >marker; }", "(>marker)", "exec >marker")
_SHELLS = (
    *("sh", "bash", "dash", "rbash", "/bin/sh", "/usr/bin/bash", "../../bin/sh", "./sh", "BASH"),
    *(
        "env bash",
        "timeout 9 sh",
        "nice sh",
        "xargs sh",
        "find . -exec sh",
        "busybox sh",
        "setsid sh",
    ),
    *("ls --help; sh", "cat\tsh", "'sh'", '"bash"', "s''h", "\\sh", "$0", "exec sh", "command sh"),
)
_LINES = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(("", "ls ", "cat file", "true", "-", "é ", "\t")),
        st.sampled_from(("", ";", "&&", "||", "&", "|", "\n", "\r\n", "`", "$(", "\\\n", "'", '"')),
        st.sampled_from(_EFFECTS),
        st.sampled_from(("", ";", ")", "`", "&", "'", '"', " #", "\n", " | cat", " 2>&1")),
    ),
)
_OPTIONS = st.sampled_from(("-c", "-lc", "-ic", "--norc -c", "-ec", "-s", "-o posix -c", ""))


@st.composite
def _requests(draw: st.DrawFn) -> dict[str, Any]:
    """A request whose only chance to have an effect is a shell."""
    line, shell, options = draw(_LINES), draw(st.sampled_from(_SHELLS)), draw(_OPTIONS)
    quote = draw(st.sampled_from(("'", '"', "")))
    how: dict[str, Any] = draw(
        st.sampled_from(
            (
                {"shell": line},
                {"command": line},
                {"command": f"{shell} {options} {quote}{line}{quote}"},
                {"argv": [*shell.split(" "), *options.split(), line]},
                {"argv": [shell, options, line]},
                {"argv": [f"{shell} {options} {line}"]},
            )
        )
    )
    more: dict[str, Any] = draw(
        st.sampled_from(
            ({}, {"merge": True}, {"cwd": "sub"}, {"stdin": f"{line}\n"}, {"timeout": 0.5})
        )
    )
    return {**how, **more}


@attempt(
    "a line of a shell, in generated spellings of shells, options, quotes and operators",
    layer="words, Landlock",
    levels="low medium",
)
async def test_no_shell_reads_a_line(plain: Boxes, level: str) -> None:
    box, loop = plain[level], asyncio.get_running_loop()

    async def run(request: dict[str, Any]) -> Outcome | None:
        try:
            return await box.run(**request)
        except (PermissionDeniedError, ValidationError):
            return None

    @settings(suppress_health_check=list(HealthCheck))
    @given(_requests())
    def attack(request: dict[str, Any]) -> None:
        done = asyncio.run_coroutine_threadsafe(run(request), loop).result()
        assert done is None or "shell" not in request
        for place in (box.workspace, box.workspace / "sub"):
            assert not (place / "marker").exists(), request

    for effect in _EFFECTS:  # each has one where a shell reads it
        await plain["high"].run(shell=effect)
        await plain["high"].delete("marker")
    known = len(await box.events("command.exec"))
    await asyncio.to_thread(attack)
    # What was let through was a program of the level, which started nothing.
    assert len(await box.events("command.exec")) == known


@spellings(
    (
        "ls",
        "touch marker",
        "> marker",
        " ",
        "\n",
        "#",
        "ls\n",
        "\N{FULLWIDTH SEMICOLON}",
        "exit",
    ),
    text="a line of a shell, even one that only names an allowed command",
    layer="words",
    levels="low medium",
)
async def test_line(plain: Boxes, arsenal: Arsenal, level: str, name: str) -> None:
    await assert_refused(plain[level], arsenal, shell=name, rule="shell-level")


@attempts(
    {
        "../new": "… above the workspace",
        "/tmp/new": "… in /tmp",
        "/workspace/../tmp/new": "… in /tmp, through the workspace",
        "/workspacex": "… beside the workspace",
        "sub/../../new": "… above the workspace, through a directory",
        "/proc/self/fd/1": "… in /proc",
    },
    layer="words",
)
async def test_output_by_name(plain: Boxes, arsenal: Arsenal, level: str, name: str) -> None:
    rule = "path-outside-workspace"
    await assert_refused(plain[level], arsenal, argv=["ls"], output_file=name, rule=rule)


@attempts(
    {
        "link": "a command's output into a file behind a link",
        "directory/new": "… through a linked directory",
        "directory/../new": "… above a linked directory",
        "file/new": "… below a file",
        "sub": "… in place of a directory",
    },
    layer="resolution of paths",
)
async def test_output_through_links(plain: Boxes, arsenal: Arsenal, level: str, name: str) -> None:
    box = plain[level]
    before = sorted(await box.paths(".", 5))
    done = await box.run(argv=["ls"], output_file=name)
    if name == "directory/../new":  # by its text, which is what counts, a file of the workspace
        assert done.exit_code == 0
        await box.delete("new")
    else:
        assert done.exit_code in (126, 127)
        assert "write its output" in done.stderr
    assert sorted(await box.paths(".", 5)) == before
    assert await box.read("file") == INSIDE
    assert held_in(box.workspace, arsenal.canary) == []

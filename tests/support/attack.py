"""Runs attack programs in sessions that allow them, so that only the kernel stops them."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import PermissionDeniedError
from orchestrator.rules.policy import levels as level_files
from tests.support.arsenal import ATTACKS, Arsenal, attack_name, held_in
from tests.support.box import Box, Outcome
from tests.support.until import until

_PACKAGED = Path(level_files.__file__).with_name("levels")


def write_armed_levels(directory: Path) -> None:
    """Level files whose string rules let attack programs run, and that change nothing else.

    The programs become commands of the level: the kernel allows the programs themselves, and no
    more.
    """
    names = ", ".join(f'"{attack_name(program)}"' for program in ATTACKS)
    for level in ("low", "medium"):
        text = (_PACKAGED / f"{level}.toml").read_text()
        armed = text.replace('"pwd",', f'"pwd", {names},', 1)
        assert armed != text
        (directory / f"{level}.toml").write_text(armed)


# The content of a file in the sessions whose string rules are attacked.
INSIDE = b"inside\n"


class Report(NamedTuple):
    """A program's report: the attempts that worked, and why the others did not."""

    worked: frozenset[str]
    refused: dict[str, str]

    def stopped(self, name: str, target: str = "") -> str:
        """Why an attempt did not work. Raises: AssertionError if it worked or was not made.

        `target` is only for the message: the target of the attempt.
        """
        assert name not in self.worked, f"{name} worked {target}"
        assert name in self.refused, f"{name} was not attempted {target}"
        return self.refused[name]


class Attacks:
    """A module's sessions, one at each level, and the reports of the programs run in them."""

    def __init__(self, plane: ControlPlane, arsenal: Arsenal, image: str | None = None) -> None:
        """`image` is the sessions' own; None: the default one."""
        self.plane = plane
        self._more = {} if image is None else {"image": image}
        self.arsenal = arsenal
        self._boxes: dict[str, Box] = {}
        self._reports: dict[tuple[str, ...], Report] = {}

    async def box(self, level: str) -> Box:
        """The session at that level, with payloads in its workspace."""
        if level not in self._boxes:
            box = await Box.create(self.plane, level, **self._more)
            for name, content in self.arsenal.payloads.items():
                await box.write(name, content)
            self._boxes[level] = box
        return self._boxes[level]

    async def run(self, level: str, program: str, *arguments: str) -> Outcome:
        """Runs an attack program to its end, and checks that its surroundings are unharmed."""
        box = await self.box(level)
        done = await box.run(argv=[attack_name(program), *arguments])
        await self.assert_unharmed(box, done)
        return done

    async def report(self, level: str, program: str, *arguments: str) -> Report:
        """The results of an attack program's attempts, each made once per module."""
        key = (level, program, *arguments)
        if key not in self._reports:
            done = await self.run(level, program, *arguments)
            assert done.exit_code == 0, (done.exit, done.stdout[-2000:], done.stderr[-2000:])
            self._reports[key] = parse_report(done.stdout)
        return self._reports[key]

    async def assert_unharmed(self, box: Box, done: Outcome) -> None:
        """Checks that nothing was stolen or left behind, and that the agent is alive."""
        if box.session.level.confinement.paths:
            secret = self.arsenal.canary
            assert secret not in done.stdout + done.stderr
            assert held_in(box.workspace, secret) == []
        await assert_well(box)


async def assert_well(box: Box) -> None:
    """Checks that commands and files work, and that nothing of the attack still runs."""
    # Other commands that tests have started have one process each.
    running = (await box.ask("stats"))["running"]
    await until(lambda: len(box.processes()) == len(running))
    await box.write("well", b"well")
    assert (await box.run("cat well")).stdout == "well"


def parse_report(output: str) -> Report:
    """The program's output."""
    lines = output.splitlines()
    refused = (line[1:].partition("\t") for line in lines if line.startswith("-"))
    return Report(
        worked=frozenset(line[1:] for line in lines if line.startswith("+")),
        refused={name: reason for name, _, reason in refused},
    )


def numbers(said: str) -> dict[str, int]:
    """The counts of a race: words and numbers alternately."""
    words = said.splitlines()[-1].split()
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


async def assert_refused(
    box: Box, arsenal: Arsenal, *, rule: str | None = None, **how: Any
) -> None:
    """Checks that it did not happen, and that the ledger says so."""
    denials = len(await box.events(decision="deny"))
    files = sorted(await box.paths(".", 5))
    with pytest.raises(PermissionDeniedError) as refused:
        await box.run(**how)
    assert rule is None or refused.value.fields["rule"] == rule
    assert arsenal.canary not in str(refused.value)
    assert sorted(await box.paths(".", 5)) == files
    assert await box.read("file") == INSIDE
    assert held_in(box.workspace, arsenal.canary) == []
    assert len(await box.events(decision="deny")) == denials + 1

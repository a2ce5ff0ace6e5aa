"""A packaged tool with its own manifest, in real sandboxes, used as a client uses it."""

import pytest

from orchestrator.ground.errors import ConflictError, PermissionDeniedError
from tests.conftest import BoxFactory
from tests.support.box import TESTER, Box
from tests.support.tool import results

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Python:
    """A terminal of the shipped python3."""

    def __init__(self, box: Box, terminal: str) -> None:
        self.box = box
        self.id = terminal

    @classmethod
    async def open(cls, box: Box) -> "Python":
        opened = await box.plane.tools.open(TESTER, box.session, "python3")
        return cls(box, opened.id)

    async def send(self, command: str, text: str) -> str:
        """The answer to a line that must succeed."""
        answer = await self.box.plane.tools.interact(
            TESTER, self.box.session, self.id, f"python3.{command}", text, 0
        )
        assert answer.status == "success", answer
        return results(answer).output


@pytest.mark.parametrize("level", ["low", "medium", "high"])
async def test_lines_that_are_declared(new_box: BoxFactory, level: str) -> None:
    python = await Python.open(await new_box(level))
    assert await python.send("assign", "sizes = [3, 5, 8]") == ""
    assert await python.send("aggregate", "sum(sizes)") == "16"
    assert await python.send("calculate", "6 * 7") == "42"


async def test_what_is_not_declared_reaches_nothing(new_box: BoxFactory) -> None:
    box = await new_box("low")
    python = await Python.open(box)
    for command, text, rule in (
        ("calculate", "__import__('os')", "pattern"),
        ("import_math", "import math", "risk-tier"),
        ("import_os", "import os", "unknown-tool"),
        ("calculate", "1\x03", "control-character"),
    ):
        with pytest.raises(PermissionDeniedError) as refusal:
            await python.send(command, text)
        assert refusal.value.fields["rule"] == rule
    raw = (
        box.plane.settings.state_dir / "evidence" / box.session.key / python.id / "raw"
    ).read_bytes()
    assert b"import" not in raw
    assert b"1" not in raw.partition(b">>> ")[2]
    assert await python.send("calculate", "1 + 1") == "2"


async def test_a_level_change_ends_what_was_open(new_box: BoxFactory) -> None:
    box = await new_box("medium")
    python = await Python.open(box)
    await box.plane.sessions.changes.set_level(TESTER, box.session, "low", {})
    with pytest.raises(ConflictError) as ended:
        await python.send("calculate", "1 + 1")
    assert ended.value.fields["reason"] == "level_changed"
    assert box.session.terminals == set()
    again = await Python.open(box)
    assert await again.send("calculate", "1 + 1") == "2"


async def test_a_pause_freezes_it(new_box: BoxFactory) -> None:
    box = await new_box("medium")
    python = await Python.open(box)
    await box.plane.sessions.pause(TESTER, box.session)
    await box.plane.sessions.resume(TESTER, box.session)
    assert await python.send("calculate", "2 + 2") == "4"


async def test_the_programs_that_an_image_lacks(new_box: BoxFactory) -> None:
    box = await new_box("low")
    assert box.session.sandbox is not None
    names = ["python3", "/bin/sh", "no-such-program", "/etc/passwd"]
    answer = await box.session.sandbox.link.request("programs", {"names": names})
    assert answer == {"absent": names[2:]}

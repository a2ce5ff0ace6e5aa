"""The attacks in an image that is none of Paddock's, whose agent is mounted.

No attempt may work there that fails in the shipped image: the kernel stops the same ones.
"""

import pytest

from tests.support.attack import Attacks
from tests.support.attempts import attempt

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROGRAMS = (
    ("execs", "forbidden"),
    ("execs", "own", "/workspace"),
    ("execs", "own", "/tmp"),
    ("reads",),
    ("writes",),
    ("calls",),
    ("memory",),
    ("sockets",),
)


@pytest.mark.parametrize("level", ["low", "medium", "high"])
@pytest.mark.parametrize("words", PROGRAMS, ids="-".join)
async def test_an_attack_works_no_better(
    attacks: Attacks, foreign_attacks: Attacks, words: tuple[str, ...], level: str
) -> None:
    usual = await attacks.report(level, *words)
    foreign = await foreign_attacks.report(level, *words)
    assert foreign.worked <= usual.worked
    assert set(usual.refused) <= set(foreign.refused)


@attempt("the mounted agent's own files", layer="Landlock", levels="low medium")
@pytest.mark.parametrize(
    "path",
    ["/opt/paddock/lib/loader", "/opt/paddock/bin/python3", "/opt/paddock/__main__.py"],
)
async def test_the_mounted_agent_is_not_read(
    attacks: Attacks, foreign_attacks: Attacks, level: str, path: str
) -> None:
    for each in (attacks, foreign_attacks):
        done = await each.run(level, "reads", path)
        assert "Permission denied" in done.stdout + done.stderr

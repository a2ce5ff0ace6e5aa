"""Signals of commands, and the ends of their trees, on kernels without Landlock scopes.

The tests that are imported run here once more, with the sessions of this module.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.state.pack import Pack
from paddock.contract.pack_form import ToolClass
from sandbox_agent.decide.facilities import WITHOUT
from tests.conftest import BoxFactory
from tests.security.test_isolation import (
    inner_parent,
    start_victim,
    test_a_command_cannot_reach_its_own_guard,
    test_a_new_process_is_never_in_reach,
    test_file_workers_are_out_of_reach,
    test_the_agent_is_out_of_reach,
)
from tests.security.test_processes import (
    test_another_process,
    test_kill_all,
    test_race_of_the_record,
    victims,
)
from tests.security.test_resource_abuse import (
    test_a_flood_of_signals_stalls_and_ends_nothing,
    test_a_fork_bomb_is_contained,
    test_a_timeout_ends_a_fork_bomb,
)
from tests.support import signalling_program
from tests.support.arsenal import Arsenal
from tests.support.attack import Attacks, assert_well, write_armed_levels
from tests.support.attempts import attempt
from tests.support.box import Box
from tests.support.older_kernels import older_host, older_image
from tests.support.plane import opened
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

AGAIN = (
    test_a_command_cannot_reach_its_own_guard,
    test_a_flood_of_signals_stalls_and_ends_nothing,
    test_a_fork_bomb_is_contained,
    test_a_new_process_is_never_in_reach,
    test_a_timeout_ends_a_fork_bomb,
    test_another_process,
    test_file_workers_are_out_of_reach,
    test_kill_all,
    test_race_of_the_record,
    test_the_agent_is_out_of_reach,
    victims,
)
_LACKING = ("scopes",)
_PROGRAM = Path(signalling_program.__file__).read_text()
# What a signal to a process that is not the command's gives, in each way; and with the kernel's
# error for a user's owner of a descriptor.
_ABSENT = ["ESRCH"] * 8 + ["EPERM"] * 4


@pytest.fixture(scope="module")
def levels_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("levels")
    write_armed_levels(directory)
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def control_plane(arsenal: Arsenal, levels_dir: Path) -> AsyncIterator[ControlPlane]:
    with older_image(arsenal.image, _LACKING) as image, older_host(_LACKING):
        async with opened(image=image, levels_dir=levels_dir) as plane:
            yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def attacks(arsenal: Arsenal, control_plane: ControlPlane) -> Attacks:
    return Attacks(control_plane, arsenal)


async def test_it_is_a_kernel_without_scopes(high: Box) -> None:
    assert WITHOUT.encode() in Path(f"/proc/{high.agent().pid}/environ").read_bytes()


async def told(box: Box) -> dict[str, Any]:
    command, pid = await start_victim(box)
    guard = await inner_parent(box, pid)
    found: dict[str, Any] = (await box.python(_PROGRAM, str(pid), str(guard))).value
    await box.feed(command, b"\n")
    assert (await box.finish(command)).stdout.splitlines()[-1] == "alive True"
    return found


def check(found: dict[str, Any]) -> None:
    assert found["others"] == dict.fromkeys(("other", "guard", "agent", "nothing"), _ABSENT)
    own, family = found["own"], found["family"]
    assert own["ways"] == [["done", 1]] * 12
    assert own["owner"] == 1
    assert own["invalid"] == ["EINVAL", "EINVAL"]
    assert own["by no descriptor"] == ["EBADF", "EBADF"]
    assert family["ended"] == [-15] * 6
    assert family["in another session"] == [-15, -15]
    assert family["received"] == ["-1 True True 0", "-1 True True 42"]
    assert (family["there"], family["gone"]) == ("done", "ESRCH")
    assert (family["as the kernel"], family["invalid"]) == ("EPERM", "EINVAL")
    assert family["everybody"] == [-9]


@attempt("signals in every way, to another command, a guard, the agent", layer="agent")
async def test_signals_reach_the_own_command_only(high: Box) -> None:
    check(await told(high))


async def test_in_a_session_with_a_pack_as_well(control_plane: ControlPlane) -> None:
    words = "python3 signals.py"
    pack = Pack(
        *("signals", "sha256:" + "0" * 64, "warn"), tools=frozenset(ToolClass), commands=(words,)
    )
    box = await Box.create(control_plane, "high", consume=pack)
    (box.workspace / "signals.py").write_text(_PROGRAM)
    check((await box.run(words)).value)
    await box.close()


@pytest.mark.parametrize("kind", ["relays", "cradles"])
async def test_processes_that_hand_over_are_ended(new_box: BoxFactory, kind: str) -> None:
    box = await new_box("high")
    bombs = [await box.start(argv=["attack-hogs", kind, "2"], background=True) for _ in range(2)]
    bystander = await box.start("cat", background=True, stdin_open=True)
    for bomb in bombs:
        await box.printed(bomb, "running")
    await asyncio.gather(*(box.cancel(bomb) for bomb in bombs))
    await until(lambda: len(box.processes()) == 1)
    await box.feed(bystander, b"unharmed", close=True)
    assert (await box.finish(bystander)).stdout == "unharmed"
    await assert_well(box)
    await box.close()

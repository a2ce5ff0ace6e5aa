"""The life of sessions in images with the mounted agent: levels, restarts, packs, waiting ones."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import pytest_asyncio

from images.foreign import check
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import ValidationError
from orchestrator.rules.policy.levels import load_levels
from orchestrator.sandbox.images.mounted_agents import LABEL_AGENT
from orchestrator.settings.settings import Settings
from orchestrator.state.pack import Pack, PackFile
from orchestrator.work.shells.kept_shell import ShellSettings
from orchestrator.work.shells.shell_runs import Until
from paddock.contract.pack_form import ToolClass
from tests.support.box import PATIENCE, TESTER, Box
from tests.support.foreign_images import busybox, debian_without_python, imported
from tests.support.plane import clear, running, state
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def names(sandbox_image: str) -> Iterator[dict[str, str]]:
    linked = busybox()
    linked.link("home", "/opt")
    with ExitStack() as stack:
        yield {
            "busybox": stack.enter_context(imported(linked.data())),
            "debian": stack.enter_context(imported(debian_without_python(sandbox_image))),
        }


async def checked(settings: Settings, names: dict[str, str]) -> None:
    for name in names.values():
        await check(name, settings, load_levels(None).values())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(sandbox_image: str, names: dict[str, str]) -> AsyncIterator[ControlPlane]:
    with state(image=sandbox_image, images=tuple(names.values())) as settings:
        async with running(settings) as plane:
            await checked(settings, names)
            yield plane
            await clear(plane)


async def change(box: Box, level: str) -> None:
    await box.plane.sessions.changes.set_level(TESTER, box.session, level, {})


async def test_a_shell_keeps_its_state(plane: ControlPlane, names: dict[str, str]) -> None:
    box = await Box.create(plane, "high", image=names["busybox"])
    settings = ShellSettings("main", "/workspace", {})
    await plane.kept_shells.create(TESTER, box.session, settings)

    async def said(command: str) -> str:
        answer = await plane.kept_shells.run(TESTER, box.session, "main", command, Until(PATIENCE))
        return str(answer.printed.text)

    assert "5" in await said("cd /tmp; X=5; echo $X")
    assert "5 at /tmp" in await said("echo $X at $PWD")


async def test_a_level_changes_where_the_image_has_what_it_needs(
    plane: ControlPlane, names: dict[str, str]
) -> None:
    box = await Box.create(plane, "high", image=names["debian"])
    await box.write("file", b"kept\n")
    await change(box, "low")
    assert (await box.run("cat file")).stdout == "kept\n"
    assert LABEL_AGENT in (await box.container()).labels
    await change(box, "high")
    assert (await box.run(shell="cat f*")).stdout == "kept\n"


async def test_a_level_that_the_image_can_not_have_changes_nothing(
    plane: ControlPlane, names: dict[str, str]
) -> None:
    box = await Box.create(plane, "high", image=names["busybox"])
    before = box.container_id
    with pytest.raises(ValidationError, match="its shell are one program"):
        await change(box, "low")
    assert (box.session.level.name, box.container_id) == ("high", before)
    assert (await box.run("echo alive")).stdout == "alive\n"


async def test_a_link_of_the_image_moves_no_workspace(
    plane: ControlPlane, names: dict[str, str]
) -> None:
    with pytest.raises(ValidationError, match="/home is no directory"):
        await Box.create(plane, "high", image=names["busybox"], workspace_path="/home/me")
    box = await Box.create(plane, "high", image=names["busybox"], workspace_path="/srv/me")
    assert (await box.run(argv=["sh", "-c", "pwd; echo $HOME"])).stdout == "/srv/me\n/srv/me\n"


@pytest.mark.parametrize("level", ["low", "high"])
async def test_a_pack_limits_what_is_read(
    plane: ControlPlane, names: dict[str, str], level: str
) -> None:
    name, image = f"pack-{secrets.token_hex(4)}", names["debian"]
    box = await Box.create(plane, level, id=name, image=image)
    await box.write("listed", b"listed\n")
    await box.write("secret", b"canary\n")
    await plane.sessions.close(TESTER, box.session, purge=False)
    pack = Pack(
        "fix",
        "sha256:" + "0" * 64,
        files={"/workspace/listed": PackFile("/workspace/listed", None)},
        tools=frozenset(ToolClass),
        mode="soft_fail",
        commands=("*",),
    )
    packed = await Box.create(plane, level, id=name, image=image, consume=pack)
    assert (await packed.run("cat listed")).stdout == "listed\n"
    refused = await packed.run("cat secret")
    assert refused.exit_code != 0
    assert "canary" not in refused.stdout
    await plane.sessions.close(TESTER, packed.session, purge=True)


async def test_a_restart_takes_over_and_a_waiting_sandbox_is_taken(
    sandbox_image: str, names: dict[str, str]
) -> None:
    members: dict[str, Any] = {"image": sandbox_image, "images": tuple(names.values())}
    with state(**members, warm_sandboxes=2) as settings:
        await checked(settings, names)
        async with running(settings) as first:
            box = await Box.create(first, "high", image=names["debian"])
            container = box.container_id
            await box.write("file", b"kept\n")
        async with running(settings) as second:
            (session,) = second.sessions.registry.all
            again = Box(second, session)
            assert again.container_id == container
            assert (await again.run("cat file")).stdout == "kept\n"
            (copy,) = (settings.state_dir / "agents").iterdir()
            assert (await again.container()).labels[LABEL_AGENT] == copy.name
            await Box.create(second, "high", image=names["debian"])
            async with asyncio.timeout(PATIENCE):
                await until(lambda: names["debian"] in {each.image for each in second.pool.shapes})
            warm = await Box.create(second, "high", image=names["debian"])
            assert warm.session.sandbox is not None
            assert warm.session.sandbox.start == "warm"
            assert (await warm.run(shell="echo $((6 * 7))")).stdout == "42\n"
            assert "/opt/paddock/lib/loader" in warm.agent().cmdline()
            await clear(second)

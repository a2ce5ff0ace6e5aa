"""A session in proposal mode moves to a fresh control plane, with real sandboxes on both."""

from collections.abc import AsyncIterator

import pytest

from api.operations.snapshots import request_in
from orchestrator.control_plane import ControlPlane
from orchestrator.operate.snapshots.snapshot import TakenSnapshot
from orchestrator.programs.turns.turn import LispCode
from orchestrator.state.requests import NewSession
from tests.integration.test_proposals import again, seeded, tree
from tests.support.box import TESTER, Box
from tests.support.plane import opened

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def restored(plane: ControlPlane, taken: TakenSnapshot) -> Box:
    async def upload() -> AsyncIterator[bytes]:
        async for chunk in taken.chunks():
            yield chunk

    received = await plane.snapshots.receive(TESTER, upload(), lambda turn: None)
    request: NewSession = request_in(plane.levels, received.manifest.session)
    registered = await plane.snapshots.restore(TESTER, received, request)
    return Box(plane, registered.session)


# A slash is the 100th byte of the paths in it.
LONG = f"{'d' * 49}/{'e' * 49}"


async def test_what_is_staged_moves_and_can_be_committed(sandbox_image: str) -> None:
    async with opened(image=sandbox_image) as old, opened(image=sandbox_image) as fresh:
        script = "echo 1 > a; mkdir -p d/e gone; echo 2 > d/e/x; echo 3 > gone/y; chmod 555 d/e"
        script += f"; mkdir -p {LONG}; : > {LONG}/empty; echo 1 > {LONG}/file; touch -d @9 {LONG}/*"
        box = await seeded(old, "moved", script, budget={"iterations": 5})
        change = "echo new > a; rm -r gone; mkdir gone; echo z > gone/z; rm -f d/e/x || true"
        await box.bash(f"chmod 755 d/e; {change}; chmod 555 d/e; ln -s a link; touch n")
        await box.bash(f": > {LONG}/staged; touch -d @8 {LONG}/staged")
        async with old.sessions.suspensions.using(TESTER, box.session):
            turn = await old.turns.start(TESTER, box.session, LispCode('(assert "seen")'))
            await old.turns.wait(turn)  # type: ignore[arg-type]
        look = f"cat a; ls -R; stat -c %a d/e; stat -c '%F %Y' {LONG}/*"
        shown = await again(box, look)
        assert "regular empty file 8\nregular empty file 9\nregular file 9\n" in "".join(
            f"{line}\n" for line in sorted(shown.splitlines())
        )
        page = await old.proposals.show(TESTER, box.session, "", 1000)
        taken = await old.snapshots.take(TESTER, box.session)
        try:
            there = await restored(fresh, taken)
        finally:
            taken.close()
        assert there.session.policy.sha256 == box.session.policy.sha256
        assert there.session.stages
        assert await again(there, look) == shown
        listed = await fresh.proposals.show(TESTER, there.session, "", 1000)
        still = {"timestamp_ns": 0}  # times come back in whole seconds
        assert [item.model_copy(update=still) for item in listed.items] == [
            item.model_copy(update=still) for item in page.items
        ]
        assert tree(there.workspace) == tree(box.workspace)
        for plane, each in ((old, box), (fresh, there)):
            async with plane.sessions.suspensions.using(TESTER, each.session):
                pass
            await plane.proposals.commit(TESTER, each.session, None, None)
        assert tree(there.workspace) == tree(box.workspace)
        assert "gone/z" in tree(there.workspace)
        turns, _ = await fresh.turns.page(there.session.key, 0, 10)
        assert [turn.number for turn in turns] == [1]
        await box.close()
        await there.close()

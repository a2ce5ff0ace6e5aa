"""What the doctor says of the runtimes that levels name."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine.base import LABEL_IMAGE, Image, MountedAgent
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.host.node.requirements import Facts
from orchestrator.operate.checks.doctor import run_checks
from orchestrator.operate.checks.runtimes import check_runtimes
from orchestrator.rules.policy import levels
from orchestrator.rules.policy.levels import load_levels
from orchestrator.settings.settings import Settings
from sandbox_agent.decide.facilities import Kernel
from tests.support.kernels import FULL_KERNEL

LEVELS = load_levels()
FACTS = Facts(FULL_KERNEL, mounts=True, quota=True)
IMAGE = Image("sha256:1", {LABEL_IMAGE: "sandbox"})
# Nobody waits for a fake engine.
SECONDS = 60.0


class Runtimes(FakeEngine):
    """An engine with a kernel for each runtime."""

    def __init__(self, kernels: dict[str | None, Kernel]) -> None:
        super().__init__(images={"image": IMAGE, Settings().image: IMAGE})
        self.kernels = kernels

    async def kernel(self, image: str, agent: MountedAgent, runtime: str | None) -> Kernel:
        """See `Engine.kernel`."""
        await super().kernel(image, agent, runtime)
        if runtime not in self.kernels:
            raise EngineUnavailableError(f"the container engine has no runtime {runtime}")
        return self.kernels[runtime]

    async def look(self, runtime: str | None) -> Kernel:
        """What a sandbox under that runtime finds."""
        return await self.kernel("image", MountedAgent("/agents/1", ("/agent",)), runtime)


async def test_each_runtime_is_examined_once_for_its_levels() -> None:
    engine = Runtimes({"crun": FULL_KERNEL, "runsc": FULL_KERNEL._replace(landlock=0, mdwe=False)})
    known = [
        replace(LEVELS["low"], runtime="crun"),
        LEVELS["medium"],
        *(replace(LEVELS["high"], name=name, runtime="runsc") for name in ("a", "b")),
        replace(LEVELS["high"], name="c", runtime="kata"),
    ]
    found = await check_runtimes(engine.look, known, FACTS, SECONDS)
    assert engine.calls == ["kernel"] * 3
    assert {name: str(each.check.status) for name, each in found.items()} == {
        **{"crun": "ok", "runsc": "ok", "kata": "failure"},
    }
    assert found["crun"].check.detail == "of low: everything is decided by the kernel's own means"
    detail = found["runsc"].check.detail
    assert detail.startswith("of a, b: files that commands use: nothing (missing under the runtime")
    assert "writable code: the system call filter (missing under the runtime runsc)" in detail
    assert found["runsc"].facts.kernel.landlock == 0
    assert found["kata"].check.detail == "the container engine has no runtime kata"
    assert found["kata"].check.remedy == "repair it in the engine, or change `runtime` of c"
    assert found["kata"].facts == FACTS


async def test_a_runtime_that_does_not_answer() -> None:
    engine = Runtimes({"crun": FULL_KERNEL})
    engine.hang_next("kernel")
    (found,) = (
        await check_runtimes(engine.look, [replace(LEVELS["low"], runtime="crun")], FACTS, 0.05)
    ).values()
    assert found.check.detail == "no answer within 0.05 s"


@pytest.mark.parametrize("landlock", [FULL_KERNEL.landlock, 0])
async def test_the_doctor_judges_a_level_by_its_own_runtime(tmp_path: Path, landlock: int) -> None:
    text = (Path(levels.__file__).with_name("levels") / "high.toml").read_text()
    (tmp_path / "high.toml").write_text(f'runtime = "runsc"\n{text}')
    engine = Runtimes({None: FULL_KERNEL, "runsc": FULL_KERNEL._replace(landlock=landlock)})
    # The path of a socket there must not be long.
    with tempfile.TemporaryDirectory(prefix="pdk-") as short:
        settings = Settings(
            listen="127.0.0.1:0",
            state_dir=Path(short, "state"),
            levels_dir=tmp_path,
            min_free_memory_bytes=0,
            min_free_disk_bytes=0,
        )
        checks = {check.name: check for check in await run_checks(settings, engine=engine)}
    assert checks["runtime runsc"].detail.startswith("of high: ")
    lacks = "needs Landlock version 1, but found none"
    assert (lacks in checks["level high"].detail) == (landlock == 0)
    assert lacks not in checks["level low"].detail

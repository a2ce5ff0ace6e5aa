"""Checks of root inside, where a level has it: the user namespace, and the writable layer."""

import tempfile
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from orchestrator.ground.check import Check, failure, ok
from orchestrator.ground.errors import PaddockError
from orchestrator.ground.threads import bounded, within
from orchestrator.host.engine.base import Engine
from orchestrator.host.node.mounts import existing
from orchestrator.host.workspace import root_layer
from orchestrator.rules.policy.levels import ROOT, Level
from orchestrator.settings.settings import Settings

LAYER = "writable layer"


def root_check(level: Level) -> str:
    """The name of the check that the level needs for root inside."""
    return "root inside" if level.runtime is None else f"root inside under {level.runtime}"


async def check_root_inside(
    engine: Engine,
    refusal: Callable[[str | None], Awaitable[str | None]],
    settings: Settings,
    levels: Iterable[Level],
    seconds: float,
) -> list[Check]:
    """Tries what these levels need, in containers and mounts that are removed again.

    `refusal` is `Inside.root_inside`. Each trial has `seconds`. Empty if no level has root inside.
    """
    rooted = [level for level in levels if level.user == ROOT]
    runtimes = {root_check(level): level.runtime or settings.runtime for level in rooted}
    checks = [
        await _namespace(refusal, name, runtime, seconds) for name, runtime in runtimes.items()
    ]
    if any(level.root_bytes is not None for level in rooted):
        checks.append(await _layer(engine, settings, seconds))
    return checks


async def _namespace(
    refusal: Callable[[str | None], Awaitable[str | None]],
    name: str,
    runtime: str | None,
    seconds: float,
) -> Check:
    late = f"no answer within {seconds:g} s"
    try:
        why = await within(refusal(runtime), seconds, late)
    except PaddockError as error:
        why = error.detail
    if why is None:
        return ok(name, "commands can be uid 0 of a user namespace")
    return failure(name, why, f"permit user namespaces, or remove user = {ROOT!r} from the levels")


async def _layer(engine: Engine, settings: Settings, seconds: float) -> Check:
    try:
        image = await within(engine.image(settings.image), seconds, None)
        layers = () if image is None else image.layers
        why = await bounded(lambda: _refusal(settings.state_dir, layers), seconds)
    except PaddockError as error:
        why = error.detail
    except TimeoutError:
        why = f"no answer within {seconds:g} s"
    if why is None:
        return ok(LAYER, "root inside can write over its image")
    return failure(LAYER, why, "fix that, or remove root_bytes from the levels")


def _refusal(state_dir: Path, layers: tuple[str, ...]) -> str | None:
    """Runs in a thread; nothing is left behind."""
    try:
        with tempfile.TemporaryDirectory(dir=existing(state_dir), prefix=".doctor-") as name:
            return root_layer.refusal(Path(name) / "layer", layers)
    except OSError as error:
        return f"{state_dir}: {error.strerror}"

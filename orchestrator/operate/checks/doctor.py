"""Checks whether everything that Paddock needs is available, and says how to fix what is not.

The control plane may be running or not. The checks change nothing permanently: they try mounts, an
image and a network, and remove them. In a state directory that is there, they make the agent of
sandboxes, which the next start would make.
"""

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from orchestrator.ground.check import Check, CheckStatus, failure, healthy
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import PaddockError
from orchestrator.ground.threads import bounded, within
from orchestrator.host.engine.base import Engine
from orchestrator.host.engine.docker import DockerEngine
from orchestrator.host.node.host import facts_of
from orchestrator.host.node.kernel import (
    PROMPTS,
    KernelFacts,
    check_prompts,
    facilities_check,
    kernel_facts,
    landlock_check,
    seccomp_check,
)
from orchestrator.host.node.mounts import (
    MOUNTS,
    PROPAGATION,
    check_mounts,
    check_proc,
    check_propagation,
    existing,
)
from orchestrator.host.node.throttle import can_throttle
from orchestrator.operate.checks.engine import (
    ENGINE,
    IMAGE,
    LEVEL_IMAGES,
    check_engine,
    check_image,
    check_level_images,
    check_open_network,
)
from orchestrator.operate.checks.guard import check_guard
from orchestrator.operate.checks.host import (
    CLOCK,
    DISK,
    PORT,
    check_clock,
    check_port,
    check_resources,
)
from orchestrator.operate.checks.in_cluster.cluster import CLUSTER, node_checks
from orchestrator.operate.checks.inside import Inside, Look, looking
from orchestrator.operate.checks.levels import level_checks
from orchestrator.operate.checks.loop import LOOP, check_loop
from orchestrator.operate.checks.network import (
    UNTRIED,
    NetworkFacts,
    Tried,
    network_check,
    network_facts,
)
from orchestrator.operate.checks.operator_mounts import MOUNT_LIST, check_mount_list
from orchestrator.operate.checks.quota import QUOTA, check_quota
from orchestrator.operate.checks.root_inside import check_root_inside
from orchestrator.operate.checks.runtimes import check_runtimes
from orchestrator.operate.checks.staging import STAGING, check_staging
from orchestrator.operate.checks.state import (
    DATABASE,
    POLICY,
    STATE,
    DatabaseCheck,
    check_database,
    check_policy,
    check_state_dir,
)
from orchestrator.operate.checks.uids import UIDS, check_uids
from orchestrator.rules.policy.levels import Level, load_levels
from orchestrator.settings.settings import Settings
from sandbox_agent.decide.facilities import UNKNOWN_KERNEL, Kernel

__all__ = ["Check", "CheckStatus", "healthy", "run_checks"]

T = TypeVar("T")

# Per check, even on a busy machine. A hung file system or engine must not hang the doctor.
_SECONDS = 20.0
# Of one call to the engine.
_ENGINE_SECONDS = 60.0
# Its seven helper containers take a second or two each, but ten and more on a slow machine.
_NETWORK_SECONDS = 240.0
_SLOW = "it does not answer in time: check the kernel's log for a hung disk or engine"


async def run_checks(
    settings: Settings,
    *,
    engine: Engine | None = None,
    image_inputs: Callable[[], str | None] | None = None,
) -> list[Check]:
    """Runs every check in a fixed order; `healthy` says whether sessions of all levels can run.

    `image_inputs` returns the hash of the image's sources, if they are available; it may block.
    `engine` is for tests; None means the engine of the settings.
    """
    proc = await _thread(check_proc, _late(MOUNTS))
    if not proc.ok:
        return [proc]
    examined = engine or DockerEngine(
        # A separate instance, so the tests do not touch what the control plane uses.
        secrets.token_hex(4),
        host=settings.docker_host,
        timeout=min(settings.engine_timeout, _ENGINE_SECONDS),
        threads=2,
        resolvers=settings.resolvers,
    )
    try:
        async with looking(settings, examined) as looks:
            return await _examine(settings, examined, looks, image_inputs)
    finally:
        if engine is None:
            await examined.close()


async def _examine(
    settings: Settings,
    engine: Engine,
    looks: Inside,
    image_inputs: Callable[[], str | None] | None,
) -> list[Check]:
    state_dir = settings.state_dir
    of_levels = settings.default_images
    facts, stored, level_images, clustered, first, (image, tried, inside) = await asyncio.gather(
        _thread(kernel_facts, KernelFacts("unknown", UNKNOWN_KERNEL, 0, 0)),
        _thread(
            lambda: check_database(state_dir / "paddock.db", _SECONDS / 2),
            DatabaseCheck(_late(DATABASE)),
        ),
        within(check_level_images(engine, of_levels), _SECONDS, _late(LEVEL_IMAGES)),
        within(node_checks(settings), _SECONDS, [_late(CLUSTER)]),
        asyncio.gather(
            within(check_engine(engine, settings.runtime), _SECONDS, _late(ENGINE)),
            _thread(lambda: check_mounts(state_dir), _late(MOUNTS)),
            _thread(lambda: check_propagation(state_dir), _late(PROPAGATION)),
            _thread(lambda: check_quota(settings), _late(QUOTA)),
            _thread(lambda: check_staging(settings), _late(STAGING)),
            _thread(lambda: check_state_dir(state_dir), _late(STATE)),
            _thread(lambda: check_policy(settings), _late(POLICY)),
            _thread(
                lambda: check_mount_list(settings, _known(settings).values()), _late(MOUNT_LIST)
            ),
            _thread(lambda: check_port(settings), _late(PORT)),
            _thread(lambda: check_uids(settings), _late(UIDS)),
            _thread(check_prompts, _late(PROMPTS)),
            _thread(lambda: check_loop(settings), _late(LOOP)),
        ),
        _examine_image(settings, engine, looks.kernel, image_inputs),
    )
    engine_found, mounts, propagation, quota, staging, *others = first
    state, policy, mount_list, port, uids, prompts, loop = others
    resources = await _thread(lambda: check_resources(settings, existing(state_dir)), [_late(DISK)])
    clock = await _thread(lambda: check_clock(stored.last_event), _late(CLOCK))
    asked = tried.refused != UNTRIED
    network = network_check(tried, await _network_facts(engine, asked=asked))
    checks = [
        engine_found,
        image,
        *([level_images] if of_levels else []),
        network,
        landlock_check(facts),
        seccomp_check(facts),
        facilities_check(facts.kernel if inside is None else facts.kernel.within(inside)),
        prompts,
        mounts,
        propagation,
        quota,
        staging,
        uids,
        state,
        stored.check,
        *([] if stored.recovery is None else [stored.recovery]),
        policy,
        mount_list,
        *resources,
        clock,
        port,
        *clustered,
        loop,
    ]
    found = facts_of(
        facts,
        mounts=mounts.ok,
        quota=quota.status is CheckStatus.OK,
        throttle=quota.status is CheckStatus.OK and can_throttle(),
    )
    unkept = network if tried.refused is not None else None
    known = _known(settings)
    runtimes = await check_runtimes(
        looks.kernel, known.values() if image.ok else (), found, _ENGINE_SECONDS
    )
    usual = found if inside is None else found.within(inside)
    root = await check_root_inside(
        engine, looks.root_inside, settings, known.values() if image.ok else (), _ENGINE_SECONDS
    )
    guard = (
        [await check_guard(looks.compiled_guard, usual.kernel, _ENGINE_SECONDS)] if image.ok else []
    )
    levels = level_checks(known, checks, usual, unkept, os.cpu_count() or 1, runtimes, root)
    return [*checks, *guard, *(each.check for each in runtimes.values()), *root, *levels]


async def _examine_image(
    settings: Settings, engine: Engine, look: Look, image_inputs: Callable[[], str | None] | None
) -> tuple[Check, Tried, Kernel | None]:
    """The image's check, a try of the open network, and the kernel as a sandbox sees it."""
    inputs = await _thread(image_inputs, None) if image_inputs is not None else None
    image = await within(check_image(engine, settings.image, inputs), _SECONDS, _late(IMAGE))
    if not image.ok:
        return image, Tried(UNTRIED), None
    rates = any(level.rates.network for level in _known(settings).values())
    tried = check_open_network(engine, settings.image, rates=rates)
    late = Tried("the engine does not answer in time")
    network = await within(tried, _NETWORK_SECONDS, late)
    return image, network, await _inside(settings, look)


async def _network_facts(engine: Engine, *, asked: bool) -> NetworkFacts:
    """`asked`: what the engine filters by, too; one that hangs is not asked once more."""
    info = None
    if asked:
        with suppress(PaddockError):  # the engine's check gives the reason
            info = await within(engine.info(), _ENGINE_SECONDS, None)
    return network_facts(None if info is None else info.firewall)


async def _inside(settings: Settings, look: Look) -> Kernel | None:
    """None if it can't be examined: the engine's check gives the reason, and so do sessions."""
    try:
        return await within(look(settings.runtime), _ENGINE_SECONDS, None)
    except PaddockError:
        return None


def _known(settings: Settings) -> Mapping[str, Level]:
    try:
        return load_levels(settings.levels_dir, cluster=settings.cluster is not None)
    except ConfigError:
        return load_levels()  # the files' own check reports the error


async def _thread(function: Callable[[], T], late: T) -> T:
    try:
        return await bounded(function, _SECONDS)
    except TimeoutError:
        return late


def _late(name: str) -> Check:
    return failure(name, f"no answer within {_SECONDS:g} s", _SLOW)

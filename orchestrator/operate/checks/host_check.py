"""Whether this host can run the control plane as a container.

Started as `python -m orchestrator.operate.checks.host_check`.

It runs in its own container before the control plane's, which the engine might refuse to start or
which might be unable to confine anything. Its output says what to do on the host.
"""

import asyncio
import secrets
import sys
from functools import partial
from pathlib import Path

from orchestrator.ground.check import Check, failure, healthy, ok
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.ground.threads import bounded
from orchestrator.host.engine.base import Engine
from orchestrator.host.engine.docker import DockerEngine
from orchestrator.host.engine.docker_probe import refusal_to_share
from orchestrator.host.node.kernel import (
    facilities_check,
    kernel_facts,
    landlock_check,
    seccomp_check,
)
from orchestrator.host.node.mounts import PROPAGATION
from orchestrator.host.workspace.uid_range import END_UID
from orchestrator.operate.checks.engine import ENGINE, check_image, engine_check
from orchestrator.operate.checks.state import check_state_dir
from orchestrator.settings.groups.capacity import FIRST_UID
from orchestrator.settings.settings import Settings, load_settings

USERS = "users"
# Includes starting and removing a container.
_SHARING_SECONDS = 120.0
SHARE = "run `scripts/shared-state.sh` on the host"


def main() -> int:
    """Prints the checks and returns the exit status: 1 if something is missing."""
    try:
        checks = asyncio.run(run_checks(load_settings()))
    except ConfigError as error:
        checks = [failure("settings", str(error), "fix it in .env or in the shell")]
    for check in checks:
        remedy = f": {check.remedy}" if check.remedy else ""
        print(f"{check.status:8}{check.name}: {check.detail}{remedy}")
    return 0 if healthy(checks) else 1


async def run_checks(settings: Settings) -> list[Check]:
    """Checks what the control plane's container needs to start."""
    engine = DockerEngine(
        secrets.token_hex(4), host=settings.docker_host, timeout=settings.engine_timeout, threads=1
    )
    try:
        found = await check_engine(engine)
        image = await check_image(engine, settings.image)
    finally:
        await engine.close()
    facts = kernel_facts()
    return [
        landlock_check(facts),
        seccomp_check(facts),
        facilities_check(facts.kernel),
        check_users(settings),
        check_state_dir(settings.state_dir),
        found,
        *([image, await look_at_sharing(settings)] if found.ok else []),
    ]


async def check_engine(engine: Engine) -> Check:
    """Whether the engine at the socket answers and can confine sandboxes."""
    try:
        return engine_check(await engine.info())
    except EngineUnavailableError as error:
        return failure(ENGINE, error.detail, "name its socket on the host in PADDOCK_DOCKER_SOCKET")


def check_users(settings: Settings) -> Check:
    """Whether workspaces' uids in this container are the same uids in the kernel."""
    uid_map = Path("/proc/self/uid_map").read_text()
    if settings.uid_base is None:
        return users_check(uid_map, FIRST_UID, END_UID - FIRST_UID)
    return users_check(uid_map, settings.uid_base, settings.uid_count)


def users_check(uid_map: str, base: int, count: int) -> Check:
    """Judges /proc/self/uid_map: uids in here must equal the host's, up to the last workspace's."""
    first, outside, length = map(int, uid_map.split()[:3])
    last = base + count - 1
    if first == outside == 0 and length > last:
        return ok(USERS, f"workspaces have the uids {base} to {last}")
    return failure(
        USERS,
        f"uids up to {last} in a container are not the host's own",
        "run the engine outside of a user namespace, or set PADDOCK_UID_BASE",
    )


async def look_at_sharing(settings: Settings) -> Check:
    """Like `check_sharing`, with a time limit for the engine."""
    try:
        return await bounded(partial(check_sharing, settings), _SHARING_SECONDS)
    except TimeoutError:
        detail = f"the container engine has not answered within {_SHARING_SECONDS:g} s"
        return failure(PROPAGATION, detail, SHARE)


def check_sharing(settings: Settings) -> Check:
    """Whether the control plane's mounts in the state directory reach the host."""
    path = str(settings.state_dir)
    try:
        refusal = refusal_to_share(settings.docker_host, path)
    except EngineUnavailableError as error:
        return failure(PROPAGATION, error.detail, SHARE)
    return sharing_check(path, refusal)


def sharing_check(path: str, refusal: str | None) -> Check:
    """Judges the engine's answer."""
    if refusal is None:
        return ok(PROPAGATION, f"{path} is on a shared mount of the host")
    if "not a shared" in refusal:
        return failure(PROPAGATION, f"{path} is not on a shared mount of the host", SHARE)
    return failure(PROPAGATION, refusal, "bind the state directory as compose.yaml does")


if __name__ == "__main__":
    sys.exit(main())

"""Whether this host can run the control plane as a container.

Started as `python -m orchestrator.checks.host_check`.

It runs in a container of its own before the control plane's, which the engine would refuse to
start, or which could not confine anything. What it prints says what to do on the host.
"""

import asyncio
import secrets
import sys
from functools import partial
from pathlib import Path

from orchestrator.checks.base import Check, failure, healthy, ok
from orchestrator.checks.engine import ENGINE, check_image, engine_check
from orchestrator.checks.kernel import kernel_facts, landlock_check, seccomp_check
from orchestrator.checks.mounts import PROPAGATION
from orchestrator.checks.state import check_state_dir
from orchestrator.config.errors import ConfigError
from orchestrator.config.settings import Settings, load_settings
from orchestrator.engine.base import Engine
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.docker_probe import refusal_to_share
from orchestrator.errors import EngineUnavailableError
from orchestrator.threads import bounded

USERS = "users"
# A container is started and removed.
_SHARING_SECONDS = 120.0
SHARE = "run `scripts/shared-state.sh` on the host"


def main() -> int:
    """Prints the checks and returns the exit status: 1 when something is missing."""
    try:
        checks = asyncio.run(run_checks(load_settings()))
    except ConfigError as error:
        checks = [failure("settings", str(error), "mend it in .env or in the shell")]
    for check in checks:
        remedy = f": {check.remedy}" if check.remedy else ""
        print(f"{check.status:8}{check.name}: {check.detail}{remedy}")
    return 0 if healthy(checks) else 1


async def run_checks(settings: Settings) -> list[Check]:
    """What must be so before the control plane's container is started."""
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
        check_users(settings),
        check_state_dir(settings.state_dir),
        found,
        *([image, await look_at_sharing(settings)] if found.ok else []),
    ]


async def check_engine(engine: Engine) -> Check:
    """Whether the engine of the socket answers, and can confine."""
    try:
        return engine_check(await engine.info())
    except EngineUnavailableError as error:
        return failure(ENGINE, error.detail, "name its socket on the host in PADDOCK_DOCKER_SOCKET")


def check_users(settings: Settings) -> Check:
    """Whether the kernel knows workspaces' users by the same uids in here."""
    uid_map = Path("/proc/self/uid_map").read_text()
    return users_check(uid_map, settings.uid_base, settings.uid_count)


def users_check(uid_map: str, base: int, count: int) -> Check:
    """From /proc/self/uid_map: uids in here must be the host's, up to the last workspace's."""
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
    """As `check_sharing`, which takes as long as the engine likes."""
    try:
        return await bounded(partial(check_sharing, settings), _SHARING_SECONDS)
    except TimeoutError:
        detail = f"the container engine has not answered within {_SHARING_SECONDS:g} s"
        return failure(PROPAGATION, detail, SHARE)


def check_sharing(settings: Settings) -> Check:
    """Whether what the control plane mounts in the state directory reaches the host."""
    path = str(settings.state_dir)
    try:
        refusal = refusal_to_share(settings.docker_host, path)
    except EngineUnavailableError as error:
        return failure(PROPAGATION, error.detail, SHARE)
    return sharing_check(path, refusal)


def sharing_check(path: str, refusal: str | None) -> Check:
    """The engine's answer, judged."""
    if refusal is None:
        return ok(PROPAGATION, f"{path} is on a shared mount of the host")
    if "not a shared" in refusal:
        return failure(PROPAGATION, f"{path} is not on a shared mount of the host", SHARE)
    return failure(PROPAGATION, refusal, "bind the state directory as compose.yaml does")


if __name__ == "__main__":
    sys.exit(main())

"""One session's sandbox: its directory, container and agent link, made and released together."""

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from orchestrator.audit.ledger import Ledger
from orchestrator.checks.throttle import node_of
from orchestrator.config.operator_mounts import OperatorMount, chosen, real_source
from orchestrator.config.settings import Settings
from orchestrator.engine.base import (
    LABEL_PROTOCOL,
    LABEL_SESSION,
    Bind,
    Container,
    ContainerState,
    Engine,
    SandboxSpec,
    missing_image,
)
from orchestrator.errors import (
    EngineUnavailableError,
    PaddockError,
    SandboxUnavailableError,
    ValidationError,
)
from orchestrator.link.agent_link import AgentLink
from orchestrator.link.fair_share import FairShare
from orchestrator.node.host import Host
from orchestrator.node.killing import FirstProcess, first_process
from orchestrator.node.processes import Earlier
from orchestrator.observe.log_context import session_context
from orchestrator.policy.levels import Level, SessionLimits
from orchestrator.policy.requirements import check
from orchestrator.sandboxes.directory import SandboxDirectory, Shared
from orchestrator.sandboxes.holding import Holding
from orchestrator.sandboxes.placing import Places
from orchestrator.sandboxes.subscribers import Subscribers
from orchestrator.sessions.budget import Budget, Kind
from orchestrator.sessions.session import MAX_RUNNING, Session
from orchestrator.sessions.workspaces import Workspaces
from orchestrator.task_scope import TaskScope
from orchestrator.threads import Threads
from sandbox_agent.protocol import PROTOCOL_VERSION, RUN_DIR, WORKSPACE_DIR, Boot

log = logging.getLogger(__name__)

LABEL_SANDBOX = "paddock.sandbox"
LABEL_LEVEL = "paddock.level"
LABEL_MOUNTS = "paddock.mounts"  # names, with spaces between
# The container's processes that are not the session's: the agent, a guard for each command
# and its file workers.
_OWN_PROCESSES = 1 + MAX_RUNNING + 8
_SHUTDOWN_SECONDS = 6.0
# How long the engine is asked for a container's first process.
_LOOK_SECONDS = 5.0
_MOST_LOOKS = 8
# Unmounting waits for the disk.
_RELEASE_SECONDS = 15.0
# At once. Where so many hang, the next start finds what the others left.
_MOST_RELEASES = 4


# A container's first process and limits; None: not known.
_Known = tuple[FirstProcess | None, dict[str, float] | None]


@dataclass(slots=True, eq=False)
class Sandbox:
    """A sandbox whose agent has said hello (or will, once it is resumed)."""

    directory: SandboxDirectory
    container_id: str
    link: AgentLink
    network: str | None
    mounts: tuple[str, ...]  # names of the operator's list
    # By which it is killed where the engine can't; None: it can't be seen from here.
    first: FirstProcess | None
    # As the engine reported them: cpus, memory_bytes, pids; None: it did not answer.
    limits: dict[str, float] | None
    # What its use of the host is compared with.
    looks: Earlier = field(default_factory=Earlier)
    # Once it is to stand still for good: whether it can be thawed.
    freezing: asyncio.Task[bool] | None = None

    @property
    def name(self) -> str:
        """16 hex digits, on the host and in the container's labels."""
        return self.directory.name


class Sandboxes:
    """Starts, adopts and releases sandboxes. Nothing is left of one that could not start."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        host: Host,
        ledger: Ledger,
        workspaces: Workspaces,
        subscribers: Subscribers,
    ) -> None:
        self._settings = settings
        self._engine = engine
        self._host = host
        self._workspaces = workspaces
        self._ledger = ledger
        self._subscribers = subscribers
        self._holding = Holding(engine, settings.image)
        self._places = Places()
        self._share = FairShare()
        self._tasks = TaskScope("the start of a sandbox")
        self._looks = Threads("first processes of sandboxes", _MOST_LOOKS)
        self._releases = Threads("sandboxes that are removed", _MOST_RELEASES)
        self._checked_images: set[str] = set()
        self._engine_checked = False

    async def check_level(self, level: Level) -> None:
        """Raises: UnmetError where this host can't enforce the level: nothing is to be begun."""
        facts = await self._host.facts()
        check(level.name, level.requires, facts, "on this host", level.rates)

    async def start(self, session: Session, level: Level, limits: SessionLimits) -> Sandbox:
        """A new sandbox for the session at that level, whose agent has said hello.

        No other sandbox may have the session's workspace: its size is set here.
        Raises: EngineUnavailableError, SandboxUnavailableError, ValidationError, and what
        `Workspaces.prepare` raises.
        """
        await self.check_level(level)
        mounts = self._mounts(session, level)
        await self._check(session.image)
        opened = None
        if level.network == "open":
            opened = await self._engine.ensure_open_network(self._settings.image)
        network = opened.name if opened else None
        workspace = session.workspace
        data = await self._workspaces.prepare(workspace, limits.workspace_bytes)
        disk = await self._holding.disk(workspace, level, data)
        boot = _boot(workspace.uid, level, limits, session.budget, mounts)

        def make() -> SandboxDirectory:
            return SandboxDirectory.create(
                self._settings.state_dir,
                data,
                uid=workspace.uid,
                home=level.home,
                noexec=level.noexec,
                boot=json.dumps(boot._asdict()),
                resolvers=opened.resolvers if opened else (),
                shared={
                    name: Shared(self._source(name, mount), mount.read_only)
                    for name, mount in mounts.items()
                },
            )

        directory = await self._places.make(make)
        link = self._link(session, directory)
        container_id = None
        try:
            await self._listen(link, session)
            spec = self._spec(session, level, limits, directory, network, mounts, disk)
            container_id = await self._engine.create(spec)
            await self._holding.begin(level, container_id, network, disk)
            known = await self._hello(directory.name, link, container_id)
            await self._check_sandbox(level, link)
            secrets = session.secrets.message()
            if secrets is not None:
                await link.request("secrets", secrets)
        except BaseException:
            await self._discard(directory, link, container_id)
            raise
        return Sandbox(directory, container_id, link, network, tuple(mounts), *known)

    async def _look(self, name: str, container_id: str) -> _Known:
        """The container's first process and limits, while its engine answers."""
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                container = await self._engine.inspect(container_id)
        except (PaddockError, TimeoutError) as error:
            log.warning("the first process of sandbox %s is not known: %s", name, error)
            return None, None
        if container is None or container.pid is None:
            return None, container.limits if container else None
        look = partial(first_process, container_id, container.pid)
        try:
            first = await self._looks.call(look, _LOOK_SECONDS)
        except TimeoutError:
            first = None
        if first is None or not first.groups:
            log.warning(
                "sandbox %s: %s of its first process %d is not seen here: where the engine does "
                "not answer, it is looked for in the usual places",
                *(name, "the control group" if first else "nothing", container.pid),
            )
        return first, container.limits

    def _mounts(self, session: Session, level: Level) -> dict[str, OperatorMount]:
        """What the session is given at that level, by name. Raises: EngineUnavailableError."""
        try:
            return chosen(self._settings.mounts, (*level.mounts, *session.mounts))
        except ValidationError as error:  # the list was changed since it asked
            raise EngineUnavailableError(error.detail) from None

    def _source(self, name: str, mount: OperatorMount) -> str:
        return real_source(name, mount, self._settings.own_dirs, self._settings.docker_host)

    async def _listen(self, link: AgentLink, session: Session) -> None:
        """Begins in a context that all which the agent does is logged in."""
        context = session_context(session.id, session.secrets.cut)
        await self._tasks.begin(link.listen(), context=context)

    async def _hello(self, name: str, link: AgentLink, container_id: str) -> _Known:
        """Waits for its agent, and meanwhile looks for its first process."""
        looking = self._tasks.begin(self._look(name, container_id))
        try:
            await link.wait_connected(self._settings.hello_timeout)
            return await looking
        except SandboxUnavailableError as error:
            said = (await self._engine.logs(container_id)).strip()[-1000:]
            if said:
                raise SandboxUnavailableError(f"{error.detail}; the agent said: {said}") from None
            raise
        finally:
            looking.cancel()

    async def _check_sandbox(self, level: Level, link: AgentLink) -> None:
        """Raises: UnmetError: the engine's runtime may offer less than the host has."""
        if link.hello is None:
            raise SandboxUnavailableError("the sandbox agent did not say what it has")
        host = await self._host.facts()
        facts = host.within(link.hello.landlock_abi, link.hello.seccomp)
        check(level.name, level.requires, facts, "in a sandbox of this engine")

    async def adopt(self, session: Session, container: Container) -> Sandbox:
        """The sandbox that an earlier control plane started.

        A paused one cannot dial: its hello comes after it is resumed.
        Raises: SandboxUnavailableError, OSError.
        """
        state_dir = self._settings.state_dir
        directory = SandboxDirectory(state_dir / "sandboxes" / container.labels[LABEL_SANDBOX])
        link = self._link(session, directory)
        try:
            await self._listen(link, session)
            if container.state is ContainerState.RUNNING:
                await link.wait_connected(self._settings.hello_timeout)
            known = await self._look(directory.name, container.id)
        except BaseException:
            await link.close()
            raise
        network = container.labels.get("paddock.network") or None
        mounts = tuple(container.labels.get(LABEL_MOUNTS, "").split())
        return Sandbox(directory, container.id, link, network, mounts, *known)

    async def quiesce(self, sandbox: Sandbox, reason: str, *, at_once: bool = False) -> bool:
        """Ends what runs and takes over its events; an agent that can't any more is left be.

        Commands get 2 s from TERM to KILL, with `at_once` KILL alone. Whether its agent has
        handed over all that it knew.
        """
        params = {"reason": reason, "at_once": at_once}
        try:
            await sandbox.link.request("shutdown", params, _SHUTDOWN_SECONDS)
            await sandbox.link.settled()
        except PaddockError as error:
            log.info("sandbox %s did not shut down by itself: %s", sandbox.name, error.detail)
            return False
        return True

    async def discard(self, sandbox: Sandbox) -> None:
        """Removes a sandbox whose container has ended, or is not to be asked any more."""
        await self.silence(sandbox)
        await self.remove(sandbox)

    async def silence(self, sandbox: Sandbox) -> None:
        """Nobody listens to it any more: what it said is on record, and how its terminals ended."""
        await self._subscribers.gone(sandbox)
        await sandbox.link.close()
        # What still waited for an answer has got none.
        await self._subscribers.gone(sandbox)

    async def remove(self, sandbox: Sandbox) -> None:
        """Removes what is left of a silent one."""
        await self._remove(sandbox.directory, sandbox.container_id)

    async def _discard(
        self, directory: SandboxDirectory, link: AgentLink, container_id: str | None
    ) -> None:
        await link.close()
        await self._remove(directory, container_id)

    async def _remove(self, directory: SandboxDirectory, container_id: str | None) -> None:
        await self._holding.end(directory)
        try:
            if container_id is not None:
                await self._engine.remove(container_id)
            await self._releases.call(directory.release, _RELEASE_SECONDS)
        except (PaddockError, OSError, TimeoutError) as error:
            # The next start finds what is left by its labels and its place.
            log.error("sandbox %s is not removed completely: %s", directory.name, error)

    def _link(self, session: Session, directory: SandboxDirectory) -> AgentLink:
        return AgentLink(
            directory.run,
            lambda boot_id: self._ledger.agent_head(session.key, boot_id),
            lambda event: self._subscribers.event(session, event),
            lambda hello: self._subscribers.hello(session, hello),
            lambda reason: self._subscribers.violation(session, reason),
            self._share,
        )

    async def _check(self, image: str) -> None:
        """Raises: where this engine can't confine, or the image is not one of ours."""
        if not self._engine_checked:
            info = await self._engine.info()
            if info.rootless or info.userns_remap:
                raise EngineUnavailableError(
                    "rootless engines and userns-remap are not supported: use a rootful engine"
                )
            self._engine_checked = True
        if image not in self._checked_images:
            found = await self._engine.image(image)
            if found is None:
                raise missing_image(image)
            protocol = found.labels.get(LABEL_PROTOCOL)
            if protocol != str(PROTOCOL_VERSION):
                raise ValidationError(
                    f"image {image} carries sandbox protocol {protocol}, this control plane needs "
                    f"{PROTOCOL_VERSION}: rebuild it with `python -m images build`",
                    field="image",
                )
            self._checked_images.add(image)

    def _spec(
        self,
        session: Session,
        level: Level,
        limits: SessionLimits,
        directory: SandboxDirectory,
        network: str | None,
        mounts: Mapping[str, OperatorMount],
        disk: str | None,
    ) -> SandboxSpec:
        return SandboxSpec(
            name=f"paddock-{directory.name}",
            image=session.image,
            labels={
                LABEL_SESSION: session.key,
                LABEL_SANDBOX: directory.name,
                LABEL_LEVEL: level.name,
                LABEL_PROTOCOL: str(PROTOCOL_VERSION),
                "paddock.network": network or "",
                LABEL_MOUNTS: " ".join(mounts),
            },
            binds=(
                Bind(str(directory.workspace), WORKSPACE_DIR, read_only=False),
                Bind(str(directory.run), RUN_DIR, read_only=True),
                Bind(str(directory.passwd), "/etc/passwd", read_only=True),
                Bind(str(directory.group), "/etc/group", read_only=True),
                Bind(str(directory.resolv_conf), "/etc/resolv.conf", read_only=True),
                # Read-only already, where they are to be: for an engine to make them so would
                # take their other flags off.
                *(
                    Bind(str(directory.mounts / name), mount.target, read_only=False)
                    for name, mount in mounts.items()
                ),
            ),
            limits=limits,
            tmp_exec=not level.noexec,
            network=network,
            runtime=self._settings.runtime,
            rates=level.rates,
            disk=None if disk is None else node_of(disk),
        )


def _boot(
    uid: int,
    level: Level,
    limits: SessionLimits,
    budget: Budget,
    mounts: Mapping[str, OperatorMount],
) -> Boot:
    targets = [mount.target for mount in mounts.values()]
    confinement = level.confinement
    return Boot(
        level=level.name,
        uid=uid,
        commands=None if level.commands is None else sorted(level.commands),
        environment=None if level.environment is None else list(level.environment),
        confinement=confinement._replace(read=[*confinement.read, *targets]),
        home=level.home,
        cpus=limits.cpus,
        memory_bytes=limits.memory_bytes,
        processes=max(8, limits.pids - _OWN_PROCESSES),
        output_bytes=level.output_bytes,
        max_running=MAX_RUNNING,
        cpu_used_us=budget.used(Kind.CPU_SECONDS),
        cpu_budget_us=budget.limits.get(Kind.CPU_SECONDS),
        output_used_bytes=budget.used(Kind.OUTPUT_BYTES),
        output_budget_bytes=budget.limits.get(Kind.OUTPUT_BYTES),
        writable=tuple(mount.target for mount in mounts.values() if not mount.read_only),
        guard_writes=level.guard_writes,
    )

"""The parts of a sandbox, opened in order and released in reverse."""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.ground.errors import (
    EngineUnavailableError,
    PaddockError,
    SandboxUnavailableError,
)
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.engine.base import Bind, Container, MountedAgent
from orchestrator.host.link.agent_link import AgentLink
from orchestrator.host.node.container_kill import FirstProcess
from orchestrator.host.workspace.staging_area import StagingArea
from orchestrator.rules.policy.levels import Level, SessionLimits
from orchestrator.sandbox.sandboxes.slow_steps import with_steps
from orchestrator.settings.operator_mounts import OperatorMount
from orchestrator.state.directory import SandboxDirectory
from orchestrator.state.sandbox import Sandbox, Way
from orchestrator.state.session import Session
from paddock.contract.words import Start


class Tenancy:
    """The session of one sandbox. It is set once, so no sandbox ever serves a second session."""

    def __init__(self, session: Session | None = None) -> None:
        self._session = session

    @property
    def vacant(self) -> bool:
        """Whether no session has the sandbox yet."""
        return self._session is None

    @property
    def session(self) -> Session:
        """The session. Raises: SandboxUnavailableError while there is none."""
        if self._session is None:
            raise SandboxUnavailableError("the sandbox has no session yet")
        return self._session

    def begin(self, session: Session) -> None:
        """Gives the sandbox to the session. Raises: ValueError if it has one."""
        if self._session is not None:
            raise ValueError("the sandbox belongs to another session")
        self._session = session

    def cut(self, text: str) -> str:
        """The text without the session's secrets."""
        return text if self._session is None else self._session.secrets.cut(text)

    def __repr__(self) -> str:
        """The session's id, as log lines show it; empty while there is none."""
        return "" if self._session is None else self._session.id


log = logging.getLogger(__name__)

LABEL_SANDBOX = "paddock.sandbox"
LABEL_LEVEL = "paddock.level"
_NOT_RELEASED = "sandbox %s is not removed completely: %s"


@dataclass(slots=True, eq=False)
class Plan:
    """What a sandbox is for, and what its parts offer to later parts."""

    tenancy: Tenancy
    image: str
    level: Level
    limits: SessionLimits
    # From the operator's list, by name. For an adopted sandbox, only `mount_names` is known.
    mounts: Mapping[str, OperatorMount]
    directory: SandboxDirectory
    link: AgentLink
    # The id that the image's name had when it was looked up; None for an adopted sandbox.
    image_id: str | None = None
    # Offered by parts: what the container gets, and what is known about it.
    labels: dict[str, str] = field(default_factory=dict)
    binds: list[Bind] = field(default_factory=list)
    agent: MountedAgent | None = None  # None: not known yet, or adopted
    variables: Mapping[str, str] = field(default_factory=dict)  # the image's, for commands
    mount_names: tuple[str, ...] = ()
    network: str | None = None  # None: no network
    resolvers: tuple[str, ...] = ()  # IPv4 addresses
    ways: list[Way] = field(default_factory=list)
    data: Path = Path()  # the workspace's files
    staging: StagingArea | None = None  # None: its session writes to its workspace
    disk: str | None = None  # the workspace's device, `major:minor`, if it has rates
    start: Start = Start.COLD
    container_id: str | None = None
    first: FirstProcess | None = None  # None: unknown
    container_limits: dict[str, float] | None = None  # None: unknown
    # The flags that mounts must have inside, as in `statvfs`; the agent checks them.
    flags: dict[str, int] = field(default_factory=dict)
    runtime: str | None = None  # the engine's name of the container's runtime; None: unknown
    own_link: bool | None = None  # not the engine has made it; None: there is none, or unknown

    @property
    def session(self) -> Session:
        """Its session. Raises: SandboxUnavailableError while it has none."""
        return self.tenancy.session

    @property
    def name(self) -> str:
        """The sandbox's name: 16 hex digits."""
        return self.directory.name


class Part(ABC):
    """One part of a sandbox.

    The same object serves all sandboxes; their state is in their plans.
    """

    # In the log: "the <name> of sandbox <hex> …".
    name: str

    @abstractmethod
    async def open(self, plan: Plan) -> None:
        """Opens the part. If this fails or is cancelled, the part is closed, however far it got."""

    async def adopt(self, plan: Plan, container: Container) -> None:  # noqa: B027 - optional
        """Takes the part over after a restart, from the container's labels and the directory."""

    async def leave(self, plan: Plan) -> None:  # noqa: B027 - optional
        """Releases this process's share of it. The sandbox continues and is adopted later."""

    async def close(self, plan: Plan) -> None:  # noqa: B027 - optional
        """Removes the part, even one that was partly opened.

        Errors are logged and the other parts are closed anyway, also those that an earlier failure
        may still use. The next start finds the rest by the container's labels and the directory's
        path.
        """


class HeldPart(Part):
    """A part that only this process has: left like closed, and adopted like opened."""

    async def adopt(self, plan: Plan, container: Container) -> None:
        """Opens it again. Raises: the errors of `open`."""
        await self.open(plan)

    async def leave(self, plan: Plan) -> None:
        """Closes it; the sandbox uses it again once it is adopted."""
        await self.close(plan)


class Assembly:
    """The parts of one sandbox: opened or adopted in order, closed or left in reverse, once."""

    def __init__(
        self,
        parts: Sequence[Part],
        plan: Plan,
        releases: TaskScope,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`releases` holds the release, which continues if its caller is cancelled."""
        self.plan = plan
        self._clock = clock
        # How long each part took to open, in seconds.
        self._seconds: dict[str, float] = {}
        self._parts = parts
        self._begun: list[Part] = []
        self._releases = releases
        self._release_task: asyncio.Task[None] | None = None
        self._removes = False

    def sandbox(self) -> Sandbox:
        """The sandbox of the open parts. Raises: SandboxUnavailableError without a container."""
        plan = self.plan
        if plan.container_id is None:
            raise SandboxUnavailableError("the sandbox has no container")
        return Sandbox(
            self,
            plan.session.key,
            plan.directory,
            plan.container_id,
            plan.link,
            plan.network,
            plan.mount_names,
            plan.first,
            plan.container_limits,
            plan.start,
            plan.ways,
            plan.runtime,
            plan.own_link,
        )

    async def open(self) -> None:
        """Opens every part. If one fails, or this is cancelled, closes those that were begun.

        Raises: the error of the part.
        """
        await self.extend(self._parts)

    async def extend(self, parts: Sequence[Part]) -> None:
        """Opens further parts, which are released before the earlier ones; fails like `open`.

        Raises: the error of the part, which says what took long.
        """
        try:
            for part in parts:
                self._begun.append(part)
                await self._open(part)
                FaultPoint.CREATE_PART_OPENED.reached()
        except PaddockError as error:
            await self.close()
            explained = with_steps(error, self._seconds)
            if explained is error:
                raise
            raise explained from error
        except BaseException:
            await self.close()
            raise

    async def _open(self, part: Part) -> None:
        """Raises: the error of the part; EngineUnavailableError if the host has no room, say."""
        began = self._clock()
        try:
            await part.open(self.plan)
        except TimeoutError:
            raise
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise EngineUnavailableError(
                f"the sandbox's {part.name} could not be made on this host: {why}"
            ) from error
        finally:
            self._seconds[part.name] = self._clock() - began

    async def adopt(self, container: Container) -> None:
        """Adopts every part. If one fails, or this is cancelled, leaves those that were begun.

        Nothing of the sandbox is removed then. Raises: the error of the part.
        """
        try:
            for part in self._parts:
                self._begun.append(part)
                await part.adopt(self.plan, container)
        except BaseException:
            await self.leave()
            raise

    async def close(self) -> None:
        """Removes the sandbox, and returns when it is removed as far as possible."""
        await self._release(remove=True)

    async def leave(self) -> None:
        """Releases the sandbox without ending it."""
        await self._release(remove=False)

    async def _release(self, *, remove: bool) -> None:
        if self._release_task is None:
            self._removes = remove
            self._release_task = self._releases.begin(self._release_all(remove=remove))
        elif remove and not self._removes:
            log.error(_NOT_RELEASED, self.plan.name, "it was left before")
        await asyncio.shield(self._release_task)

    async def _release_all(self, *, remove: bool) -> None:
        while self._begun:
            part = self._begun.pop()
            try:
                await (part.close(self.plan) if remove else part.leave(self.plan))
                FaultPoint.CLOSE_PART_CLOSED.reached()
            except (PaddockError, OSError) as error:  # includes TimeoutError
                why = str(error) or type(error).__name__
                log.error(_NOT_RELEASED, self.plan.name, f"its {part.name} stays: {why}")
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                log.error(_NOT_RELEASED, self.plan.name, f"its {part.name} was interrupted")
            except Exception:
                log.exception(_NOT_RELEASED, self.plan.name, f"its {part.name} stays")

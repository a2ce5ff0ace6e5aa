"""Parts of a sandbox that belong to its agent: its socket, hello, configuration and pack."""

import asyncio
import hmac
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager

from orchestrator.ground.errors import ConflictError, PaddockError, SandboxUnavailableError
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.log_context import session_context
from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.engine.base import (
    LABEL_LINK,
    LABEL_PROTOCOL,
    Container,
    ContainerState,
    Engine,
)
from orchestrator.host.link.agent_link import REQUEST_SECONDS, AgentLink
from orchestrator.host.link.earlier_agents import taken_over
from orchestrator.host.link.messages import malformed
from orchestrator.host.link.vouching import Vouching
from orchestrator.host.node.base import Node
from orchestrator.sandbox.sandboxes.configuration import configuration_of, relative
from orchestrator.sandbox.sandboxes.parts import HeldPart, Part, Plan
from orchestrator.sandbox.sandboxes.suitability import Suitability
from orchestrator.state.pack import PackFile
from paddock.contract.pack_form import json_bytes

log = logging.getLogger(__name__)

# The time limit of the engine's answer about a container's first process.
_LOOK_SECONDS = 5.0


class LinkPart(HeldPart):
    """The control socket, on which the control plane listens before the container starts."""

    name = "link"

    def __init__(self) -> None:
        self._tasks = TaskScope("the start of a link")

    async def open(self, plan: Plan) -> None:
        """Raises: OSError."""
        # The context of all log lines about the agent's actions.
        context = session_context(plan.tenancy, plan.tenancy.cut)
        await self._tasks.begin(plan.link.listen(), context=context)

    async def adopt(self, plan: Plan, container: Container) -> None:
        """An agent that was never configured is refused. Raises: OSError, SandboxUnavailableError.

        An agent of an earlier version is talked to in its protocol, which its container names.
        """
        label, packed = container.labels.get(LABEL_PROTOCOL), plan.session.pack is not None
        plan.link.protocol = taken_over(label, packed=packed)
        plan.link.expect_configured()
        await self.open(plan)

    async def close(self, plan: Plan) -> None:
        """Afterwards, everything that the agent reported is recorded.

        An agent whose sandbox is left reconnects until a control plane listens again.
        """
        await plan.link.close()


class HelloPart(Part):
    """The agent's first words: it has what the level requires, and it belongs to nobody."""

    name = "hello"

    def __init__(self, node: Node, suitability: Suitability, hello_timeout: float) -> None:
        self._node = node
        self._engine = node.engine
        self._suitability = suitability
        self._hello_timeout = hello_timeout
        self._tasks = TaskScope("the start of a sandbox")

    async def open(self, plan: Plan) -> None:
        """Raises: SandboxUnavailableError, UnmetError."""
        # Meanwhile, its first process is looked up.
        looking = self._tasks.begin(self._look(plan))
        try:
            async with explained(self._engine, plan):
                await self._hello(plan)
                await looking
                self._note(plan)
        finally:
            looking.cancel()

    async def adopt(self, plan: Plan, container: Container) -> None:
        """A paused agent can't connect: its hello comes after it is resumed.

        Raises: SandboxUnavailableError.
        """
        await self._look(plan)
        if container.state is ContainerState.RUNNING:
            await self._thaw(plan)
            await plan.link.wait_connected(self._hello_timeout)
        self._note(plan)

    async def close(self, plan: Plan) -> None:
        """Stops listening to the agent."""
        await plan.link.close()

    async def _thaw(self, plan: Plan) -> None:
        """Lets one continue whose end was interrupted after it was frozen."""
        try:
            if await self._node.thaw(plan.container_id or "", plan.first):
                log.warning("sandbox %s was frozen for an end that did not come", plan.name)
        except (OSError, RuntimeError, TimeoutError) as error:
            log.warning("whether sandbox %s is frozen is not known: %s", plan.name, error)

    async def _hello(self, plan: Plan) -> None:
        """Raises: SandboxUnavailableError, UnmetError."""
        await plan.link.wait_connected(self._hello_timeout)
        hello = plan.link.hello
        packed = not plan.tenancy.vacant and plan.session.pack is not None
        await self._suitability.check_sandbox(plan.level, hello, packed=packed)
        if hello is not None and hello.configured:
            raise SandboxUnavailableError("the sandbox agent was configured by somebody else")

    def _note(self, plan: Plan) -> None:
        """An engine that does not answer does not say under which runtime the agent is.

        An agent of an earlier version does not know all of the facilities that it has.
        """
        if plan.link.earlier or plan.runtime is None or plan.link.hello is None:
            return
        self._suitability.note(plan.runtime, plan.link.hello)

    async def _look(self, plan: Plan) -> None:
        """Looks up the container's first process and limits while the engine answers."""
        container_id = plan.container_id or ""
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                container = await self._engine.inspect(container_id)
        except (PaddockError, TimeoutError) as error:
            log.warning("the first process of sandbox %s is not known: %s", plan.name, error)
            return
        if container is None:
            return
        plan.container_limits = container.limits
        plan.runtime = container.runtime
        plan.own_link = None if plan.network is None else LABEL_LINK in container.labels
        if container.pid is None:
            return
        try:
            plan.first = await self._node.first_process(container_id, container.pid)
        except TimeoutError:
            plan.first = None
        if plan.first is None or not plan.first.groups:
            log.warning(
                "sandbox %s: %s of its first process %d is not visible here: while the engine does "
                "not answer, the usual places are searched",
                *(plan.name, "the control group" if plan.first else "nothing", container.pid),
            )


class PreparePart(Part):
    """Makes the agent do what it can do before it has a session.

    It finds out what its level needs of the image, and forks the first guard.
    """

    name = "preparation"

    async def open(self, plan: Plan) -> None:
        """Raises: SandboxUnavailableError."""
        listed = plan.level.commands if plan.level.confinement.paths else None
        await plan.link.request("prepare", {"commands": sorted(listed or ())})


class AgentPart(Part):
    """The agent with its session: it is configured, once, and can then run commands."""

    name = "agent"

    def __init__(
        self,
        engine: Engine,
        pip_index: str | None,
        vouching: Vouching,
        seconds: float = REQUEST_SECONDS,
    ) -> None:
        """`seconds` is the time limit for each of the agent's answers."""
        self._vouching = vouching
        self._engine = engine
        self._pip_index = pip_index
        self._seconds = seconds

    async def open(self, plan: Plan) -> None:
        """Raises: SandboxUnavailableError."""
        async with explained(self._engine, plan):
            await self._configure(plan)
            # The end of a container that has no session yet is not noticed.
            if not plan.link.connected:
                raise SandboxUnavailableError("the sandbox agent disconnected")

    async def _configure(self, plan: Plan) -> None:
        """From here on, the agent can run the session's commands."""
        configuration = configuration_of(plan, self._pip_index)
        await plan.link.request("configure", configuration, self._seconds)
        plan.link.expect_configured()
        if plan.session.recovers:
            await self._vouching.vouch(plan.link)
        secrets = plan.session.secrets.message()
        if secrets is not None:
            await plan.link.request("secrets", secrets, self._seconds)


# The most bytes of paths and the most files in one request to the agent, whose usual answers are
# short; and the time for its answer, within which it reads at least one file.
_BATCH_BYTES, _BATCH_FILES = 256 * 1024, 1_000
_SECONDS = 35.0
_MOST_NAMED = 100


class PackPart(Part):
    """Checks that the files are as the pack has them. Nothing runs in the sandbox yet.

    The agent reads them as the session's user, without following links.
    """

    name = "context pack"

    async def open(self, plan: Plan) -> None:
        """Raises: ConflictError with the `paths` that differ; SandboxUnavailableError."""
        pack = plan.session.pack
        if pack is None:
            return
        differing = [
            file.path
            for batch in _batches(list(pack.files.values()))
            for file in await _differing(plan.link, batch)
        ]
        FaultPoint.REFINE_COMPARED.reached()
        if differing:
            named = differing[:_MOST_NAMED]
            raise ConflictError(
                f"{len(differing)} files of the context pack are missing in the workspace, or have "
                f"another content: {', '.join(named[:3])}{', …' if len(differing) > 3 else ''}",
                paths=named,
            )


def _batches(files: Sequence[PackFile]) -> Iterator[list[PackFile]]:
    batch: list[PackFile] = []
    size = 0
    for file in files:
        size += json_bytes(file.path)
        if batch and (size > _BATCH_BYTES or len(batch) >= _BATCH_FILES):
            yield batch
            batch, size = [], json_bytes(file.path)
        batch.append(file)
    if batch:
        yield batch


async def _differing(link: AgentLink, files: list[PackFile]) -> list[PackFile]:
    found: list[PackFile] = []
    while files:
        params = {"paths": [relative(file.path) for file in files]}
        digests = (await link.request("file.digest", params, _SECONDS)).get("digests")
        if not isinstance(digests, list) or not 0 < len(digests) <= len(files):
            raise malformed()
        found += [file for file, told in zip(files, digests, strict=False) if not _is(file, told)]
        files = files[len(digests) :]
    return found


def _is(file: PackFile, digest: object) -> bool:
    if not isinstance(digest, str):
        return False
    wanted = file.content_hash
    return wanted is None or hmac.compare_digest(wanted.encode(), f"sha256:{digest}".encode())


@asynccontextmanager
async def explained(engine: Engine, plan: Plan) -> AsyncGenerator[None]:
    """Adds what the agent printed to the error of an agent that failed."""
    try:
        yield
    except SandboxUnavailableError as error:
        printed = (await engine.logs(plan.container_id or "")).strip()[-1000:]
        if printed:
            raise SandboxUnavailableError(f"{error.detail}; the agent said: {printed}") from None
        raise

"""Stops a sandbox at once, independently of its agent, the database and the disk."""

import asyncio
import logging

from orchestrator.ground.errors import PaddockError, SandboxUnavailableError
from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.node.base import Node
from orchestrator.state.sandbox import Sandbox

log = logging.getLogger(__name__)

# The time limit for the engine to freeze a sandbox.
_FREEZE_SECONDS = 5.0
# How often the engine is asked to freeze everything as it is.
_ATTEMPTS = 2


class Stopper:
    """Freezes sandboxes. If the engine can't, kills the processes in the control group."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._tasks = TaskScope("the freezing of a sandbox")

    async def freeze(self, sandbox: Sandbox, *, ends: bool = False) -> bool:
        """Whether the sandbox is frozen and can be thawed; otherwise its processes were killed.

        It is frozen only once, however often this is called. If its session `ends`, the engine need
        not know of it, and nothing is lost by killing, so the log does not warn of it.
        """
        sandbox.shut_off()
        sandbox.freezes.refuse()
        if sandbox.freezing is None:
            freezing = self._freeze_for_end(sandbox) if ends else self._freeze(sandbox)
            sandbox.freezing = self._tasks.begin(freezing)
        return await asyncio.shield(sandbox.freezing)

    async def let_go(self, sandbox: Sandbox) -> None:
        """Resumes what `freeze` stopped, if it can be thawed."""
        if sandbox.freezing is not None and await sandbox.freezing:
            await self.thaw(sandbox)
        sandbox.freezing = None
        sandbox.freezes.allow()

    async def hold(self, sandbox: Sandbox) -> None:
        """Freezes the sandbox for a while, in the same way as `freeze`.

        Raises: SandboxUnavailableError if it can't be thawed; none of it runs then.
        """
        sandbox.shut_off()
        if sandbox.frozen_here:  # its session ends
            return
        if not await self._freeze(sandbox):
            raise SandboxUnavailableError("the sandbox can't be frozen, so what ran was killed")

    async def thaw(self, sandbox: Sandbox) -> bool:
        """Whether its agent can continue; the caller must then end what runs."""
        try:
            async with asyncio.timeout(_FREEZE_SECONDS):
                if sandbox.frozen_here:
                    await self._node.thaw(sandbox.container_id, sandbox.first)
                    sandbox.frozen_here = False
                else:
                    await self._node.engine.resume(sandbox.container_id)
        except (PaddockError, OSError, RuntimeError, TimeoutError) as error:
            log.warning("sandbox %s can't be thawed, so it is killed: %s", sandbox.name, error)
            await self._kill(sandbox)
            return False
        # A session that ends is refused all the same.
        sandbox.reopen()
        return True

    async def _freeze_for_end(self, sandbox: Sandbox) -> bool:
        """Freezes it for the end of its session: without the engine, if that can be done here."""
        try:
            sandbox.frozen_here = await self._node.freeze(sandbox.container_id, sandbox.first)
        except (OSError, RuntimeError, TimeoutError) as error:
            log.debug("the engine freezes sandbox %s: %s", sandbox.name, error)
        return sandbox.frozen_here or await self._freeze(sandbox, logging.DEBUG)

    async def _freeze(self, sandbox: Sandbox, level: int = logging.WARNING) -> bool:
        """Whether it is frozen; otherwise it is killed. Failures are logged at that level."""
        try:
            await self._freeze_rest(sandbox, level)
        except (PaddockError, TimeoutError) as error:
            log.log(level, "sandbox %s can't be frozen, so it is killed: %s", sandbox.name, error)
        except Exception:
            # Any error: it must not make an end fail, now or at the next attempt.
            log.exception("sandbox %s can't be frozen, so it is killed", sandbox.name)
        else:
            return True
        await self._kill(sandbox)
        return False

    async def _freeze_rest(self, sandbox: Sandbox, level: int) -> None:
        """Freezes it; kills processes first that start and end too fast to be frozen.

        On a busy host, the engine may give up early once: killing would end what a pause keeps.
        Raises: PaddockError, TimeoutError.
        """
        async with asyncio.timeout(_FREEZE_SECONDS):
            for _ in range(_ATTEMPTS):
                try:
                    await self._node.engine.pause(sandbox.container_id)
                except PaddockError as error:
                    log.log(level, "sandbox %s can't be frozen: %s", sandbox.name, error.detail)
                else:
                    return
            await self._kill(sandbox, spare_first=True)
            await self._node.engine.pause(sandbox.container_id)

    async def _kill(self, sandbox: Sandbox, *, spare_first: bool = False) -> None:
        try:
            killed = await self._node.kill(
                sandbox.container_id, sandbox.first, spare_first=spare_first
            )
        except (OSError, RuntimeError, TimeoutError) as error:
            log.error("the processes of sandbox %s can't be killed: %s", sandbox.name, error)
            return
        # All its processes have ended with the first one.
        if not killed and sandbox.first is None:
            log.error(
                "no process of sandbox %s was found to be killed: it has no visible control "
                "group, and its first process is not known",
                sandbox.name,
            )

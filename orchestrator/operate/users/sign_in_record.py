"""Sign-ins on record. Refusals cost nobody anything, so they are counted above a low rate."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.task_scope import TaskScope
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.users import SignedIn
from sandbox_agent.decide.repeats import Repeats

log = logging.getLogger(__name__)

_OPERATION = "user.sign_in"
# Refusals that are recorded individually: in a burst, and in each second after that. All reasons
# together have at most twice as many events, whoever is refused how often.
_BURST, _RATE = 10, 1 / 60
# Counted refusals are recorded after this time.
_SECONDS = 60.0


class SignInRecord:
    """Records who has signed in, and counts who was refused and why."""

    def __init__(self, recorder: Recorder, clock: Callable[[], float] = time.monotonic) -> None:
        self._recorder = recorder
        self._clock = clock
        self._repeats = Repeats[EventDraft](_RATE, _BURST)
        self._tasks = TaskScope("refused sign-ins")
        self._closing = asyncio.Event()
        self._later: asyncio.Task[None] | None = None

    async def signed_in(self, user: SignedIn) -> None:
        """As `SignInEvents.signed_in`."""
        principal = user.principal
        args = {
            "name": principal.name,
            "role": str(principal.role),
            "issued_at": user.issued_at.isoformat(),
            "until": user.until.isoformat(),
        }
        draft = EventDraft(_OPERATION, principal.name, decision="allow", args=args)
        await self._recorder.record_system(draft)

    def refused(self, issuer: str, why: str, rule: str) -> None:
        """As `SignInEvents.refused`."""
        draft = EventDraft(
            _OPERATION, "nobody", decision="deny", rule=rule, args={"issuer": issuer}, error=why
        )
        like = f"{issuer} {why}"
        if self._repeats.take(like, draft, self._clock()):
            self._tasks.spawn(self._write(like, draft))
        elif self._later is None:
            self._later = self._tasks.spawn(self._write_later())

    async def close(self) -> None:
        """Records what was only counted, as far as possible."""
        self._closing.set()
        await self._tasks.drain()

    async def _write(self, like: str, draft: EventDraft) -> None:
        try:
            await self._recorder.record_system(draft)
        except PaddockError as error:
            log.error("a refused sign-in is not on record yet: %s", error.detail)
            self._repeats.count(like, draft)

    async def _write_later(self) -> None:
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_SECONDS):
                    await self._closing.wait()
            # What can't be recorded stays counted until the next refusal.
            for like, draft, count in self._repeats.counted():
                repeated = draft._replace(args={**draft.args, "repeats": count})
                await self._recorder.record_system(repeated)
                self._repeats.mark_reported(like, count)
        finally:
            self._later = None

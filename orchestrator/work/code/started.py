"""The beginning of a context's program: it says what it is, or why it can't be."""

import asyncio

from orchestrator.ground.errors import ConflictError, SandboxUnavailableError, ValidationError
from orchestrator.state.session import Session
from orchestrator.work.code.context import CodeContext
from sandbox_agent.decide.code_frames import CodeFrame, CodeFrameError

# A kernel with many packages takes some seconds on a busy machine.
_SECONDS = 60.0
_MOST_SHOWN = 500


class Started:
    """What a context's program says before its first cell."""

    def __init__(self) -> None:
        self._kernel: str | None = None
        self._known: list[str] | None = None
        self._printed = bytearray()

    async def wait(self, session: Session, context: CodeContext) -> None:
        """Returns when it takes cells.

        Raises: ValidationError for an unknown language, ConflictError if it has ended,
        SandboxUnavailableError if it takes too long.
        """
        try:
            async with asyncio.timeout(_SECONDS):
                begun = await context.read(session, self._take, self._take_error)
        except TimeoutError:
            raise SandboxUnavailableError(f"{context.language} did not begin in time") from None
        except CodeFrameError as error:
            raise ConflictError(f"the program of the code context is not ours: {error}") from None
        if self._known is not None:
            known = ", ".join(self._known)
            raise ValidationError(
                f"this sandbox has no {context.language}: it has {known}", field="language"
            )
        if not begun or self._kernel is None:
            shown = self._printed.decode(errors="replace").strip()
            raise ConflictError(f"{context.language} ended at once: {shown or 'it said nothing'}")
        context.kernel = self._kernel

    def _take(self, frame: CodeFrame) -> bool:
        if frame.kind == "ready":
            self._kernel = frame.name
        elif frame.kind == "no":
            self._known = frame.data[:_MOST_SHOWN].decode(errors="replace").split()
        elif frame.kind in ("out", "err"):
            self._take_error(frame.data)
        return frame.kind in ("ready", "no")

    def _take_error(self, data: bytes) -> None:
        self._printed += data
        del self._printed[:-_MOST_SHOWN]

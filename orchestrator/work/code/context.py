"""A context: a program in the sandbox that executes cells, and keeps their names."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.ground.errors import SandboxUnavailableError
from orchestrator.state.command import Command
from orchestrator.state.session import Session
from orchestrator.work.code.cell import Cell
from orchestrator.work.commands import running_command
from sandbox_agent.decide.code_frames import CodeFrame, CodeFrameError, CodeFrames

# The runner's words, as every image has them. The image's own Python is found by its name.
_RUNNER = ("python3", "/opt/paddock/sandbox_agent/code")
# One request to the agent, which answers as soon as there is output.
_POLL_SECONDS = 15.0
_MOST_FAILURES = 3
# Frames are cut from so many bytes at a time, and others run in between.
_PIECE_BYTES = 16 * 1024

# Takes a frame, or what the runner printed itself; returns whether it was the last one.
Take = Callable[[CodeFrame], bool]
TakeError = Callable[[bytes], None]


class ContextStatus(StrEnum):
    """What a context is doing. Ended: its next cell begins it anew."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class CodeContext:
    """One context of a session.

    `directory` is where its cells begin, relative to the workspace or absolute; None: the
    workspace. `lock` is held by the cell that is executed, or by a change of the context; cells
    get it in their order.
    """

    name: str
    language: str
    directory: str | None
    created_at: str
    kernel: str | None = None
    command: Command | None = None
    cell: Cell | None = None
    execution_count: int = 0
    # Whether it was removed, so that cells that still wait for it find nothing.
    removed: bool = False
    # The number of cells that wait.
    waiting: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _frames: CodeFrames = field(default_factory=CodeFrames)
    # How much of the program's output was read.
    _position: int = 0

    @property
    def argv(self) -> list[str]:
        """The words of its program."""
        return [*_RUNNER, self.language]

    @property
    def alive(self) -> bool:
        """Whether its program takes cells."""
        return self.kernel is not None and self.command is not None and not self.command.ended

    @property
    def status(self) -> ContextStatus:
        """What it is doing."""
        if self.command is None or self.command.ended:
            return ContextStatus.STARTING if self.lock.locked() else ContextStatus.ENDED
        if self.kernel is None:
            return ContextStatus.STARTING
        return ContextStatus.IDLE if self.cell is None else ContextStatus.BUSY

    def begin(self, command: Command) -> None:
        """Its program was started."""
        self.command, self.kernel, self.execution_count = command, None, 0
        self._frames, self._position = CodeFrames(), 0

    def forget_program(self) -> None:
        """Its program has ended, or is not used any more."""
        self.command = self.kernel = None

    async def read(self, session: Session, take: Take, take_error: TakeError) -> bool:
        """Reads frames to the last one; returns whether it came before the program's end.

        Raises: CodeFrameError for what is no frame or is missing; SandboxUnavailableError.
        """
        failures = 0
        while self.command is not None:
            try:
                page = await running_command.read_output(
                    *(session, self.command, self._position, _POLL_SECONDS), looks=True, whole=True
                )
            except SandboxUnavailableError:
                failures += 1
                if failures >= _MOST_FAILURES:
                    raise
                continue
            failures, last = 0, False
            for stream, offset, data in page.chunks:
                if offset > self._position:
                    raise CodeFrameError("a part of the output is missing")
                self._position = offset + len(data)
                if stream == "stderr":
                    take_error(data)
                else:
                    last = await self._take(data, take) or last
            if last:
                return True
            if page.lost or (page.ended and not page.chunks):
                break
        return False

    async def _take(self, data: bytes, take: Take) -> bool:
        last = False
        for at in range(0, len(data), _PIECE_BYTES):
            for frame in self._frames.feed(data[at : at + _PIECE_BYTES]):
                last = take(frame) or last
            await asyncio.sleep(0)
        return last


def is_runner(command: Command) -> bool:
    """Whether a command is the program of a context."""
    return command.background and tuple(command.argv[: len(_RUNNER)]) == _RUNNER

"""Input for a terminal's program that the kernel has not taken yet: bounded."""

import os

from sandbox_agent.core.loop import Loop, Timer
from sandbox_agent.core.outputs import Reply
from sandbox_agent.decide.errors import AgentError

# The most bytes of one request. The next request waits until the kernel has taken them.
MOST_BYTES = 64 * 1024
# How long a caller waits until the kernel has taken its bytes: less than the control plane's own
# time-out.
PATIENCE_SECONDS = 20.0


class UntakenInput:
    """Bytes on their way to a terminal, and the caller who waits until they are taken."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._untaken = bytearray()
        self._waiting: tuple[Reply, Timer] | None = None

    def __bool__(self) -> bool:
        """Whether the kernel has not taken everything yet."""
        return bool(self._untaken)

    def add(self, data: bytes) -> None:
        """Keeps bytes for `write`."""
        self._untaken += data

    def check(self, data: bytes) -> None:
        """Raises: AgentError if the bytes are too many, or earlier ones are not taken yet."""
        if len(data) > MOST_BYTES:
            raise AgentError("validation_error", f"data may have at most {MOST_BYTES} bytes")
        if self._untaken:
            raise AgentError("busy", "the program does not read what was typed: try again")

    def write(self, master: int) -> None:
        """Writes as much as the kernel takes; answers the caller once nothing is left."""
        try:
            while self._untaken:
                del self._untaken[: os.write(master, self._untaken)]
        except BlockingIOError:
            return
        except OSError:  # no process reads it any more
            self._untaken.clear()
        self._answer({})

    def when_taken(self, reply: Reply) -> None:
        """Answers once the kernel has taken everything, or with `busy` if that takes too long."""
        if not self._untaken:
            reply({})
            return
        self._waiting = reply, self._loop.after(PATIENCE_SECONDS, self._give_up)

    def forget_caller(self) -> None:
        """Drops the caller after the connection was lost; the bytes are still written."""
        if self._waiting is not None:
            self._waiting[1].cancel()
            self._waiting = None

    def close(self) -> None:
        """Drops what was not taken: the terminal has ended."""
        self._untaken.clear()
        self._answer(AgentError("conflict", "the terminal has ended"))

    def _give_up(self) -> None:
        text = f"the program has not read what was typed for {PATIENCE_SECONDS:g} s: try again"
        self._answer(AgentError("busy", text))

    def _answer(self, answer: dict[str, object] | AgentError) -> None:
        if self._waiting is not None:
            (reply, timer), self._waiting = self._waiting, None
            timer.cancel()
            reply(answer)

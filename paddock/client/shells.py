"""Shells that keep their state between commands."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from paddock.client.answers import read, read_items
from paddock.client.faces import F, Face, Link, method
from paddock.client.requests import ENGINE_SECONDS, segment
from paddock.contract.shells import DEFAULT_RUN_SECONDS, DEFAULT_SHELL, ShellAnswer
from paddock.contract.shells import Shell as ShellInfo

# An answer comes that much after its time at the latest: the command is stopped, then recorded.
_LATE_SECONDS = 60.0


class Shell(Face[F]):
    """A shell of a session: its directory, variables, functions and jobs stay between commands.

    All methods raise `PaddockAPIError` in the class of its code, and the other errors of
    `paddock.client.errors`: NotFoundError if there is no such shell, ConflictError if it has ended
    (create it again).

    Attributes:
        name: the shell's name.
        info: the shell as of the last answer that described it; `refresh` requests it again.
    """

    def __init__(self, link: Link, path: str, info: ShellInfo) -> None:
        super().__init__(link)
        self.name = info.name
        self.info = info
        self._path = f"{path}/{segment(info.name)}"

    def __repr__(self) -> str:
        return f"<Shell {self.name} {self.info.cwd}>"

    @method
    async def run(
        self,
        command: str,
        *,
        timeout: float = DEFAULT_RUN_SECONDS,
        expect: str | Sequence[str] | None = None,
        at_timeout: Literal["stop", "continue"] = "stop",
    ) -> ShellAnswer:
        """Runs a command, of any number of lines; returns what has come of it.

        Args:
            command: a text for bash.
            timeout: seconds, also fractions.
            expect: return as soon as the output contains this text, or one of these, while the
                command runs on. None: also when a program waits for input.
            at_timeout: `stop` interrupts the command at the end of the time, and kills it if that
                does not help; the shell stays if it can. `continue` lets it run on.

        Raises: BusyError while another command runs.
        """
        return await self._answer("run", {"command": command}, timeout, expect, at_timeout)

    @method
    async def input(
        self,
        text: str = "",
        *,
        timeout: float = DEFAULT_RUN_SECONDS,
        expect: str | Sequence[str] | None = None,
        at_timeout: Literal["stop", "continue"] = "stop",
    ) -> ShellAnswer:
        """Types a text into the program that runs; returns what has come of it.

        Args:
            text: as typed: a line ends with a line feed. Empty: only wait for the next answer.
            timeout: as for `run`.
            expect: as for `run`.
            at_timeout: as for `run`.

        Raises: ConflictError if no command runs, BusyError while another caller waits for it.
        """
        return await self._answer("input", {"text": text}, timeout, expect, at_timeout)

    @method
    async def interrupt(self) -> ShellInfo:
        """Interrupts the command that runs, as Ctrl-C does; the shell stays."""
        return self._take(await self._api.json("POST", f"{self._path}/interrupt"))

    @method
    async def refresh(self) -> ShellInfo:
        """The shell as it is now."""
        return self._take(await self._api.json("GET", self._path))

    @method
    async def close(self) -> ShellInfo:
        """Ends the shell and everything that it has started."""
        return self._take(await self._api.json("DELETE", self._path, timeout=ENGINE_SECONDS))

    def _take(self, view: dict[str, Any]) -> ShellInfo:
        self.info = read(ShellInfo, view)
        return self.info

    async def _answer(
        self,
        what: str,
        given: dict[str, object],
        timeout: float,
        expect: str | Sequence[str] | None,
        at_timeout: str,
    ) -> ShellAnswer:
        texts = expect if expect is None or isinstance(expect, str) else list(expect)
        body = {**given, "timeout": timeout, "expect": texts, "at_timeout": at_timeout}
        answer = await self._api.json(
            "POST", f"{self._path}/{what}", body=body, timeout=timeout + _LATE_SECONDS
        )
        return read(ShellAnswer, answer)


class Shells(Face[F]):
    """The shells of a session that keep their state."""

    def __init__(self, link: Link, path: str) -> None:
        super().__init__(link)
        self._path = f"{path}/shells"

    @method
    async def create(
        self,
        name: str = DEFAULT_SHELL,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Shell[F]:
        """The shell of that name, which is started if there is none.

        Args:
            name: its name in the session.
            cwd: where it begins; by default in the workspace.
            env: additional variables.

        Raises: PermissionDeniedError with the `rule` if the session's level permits no shell,
        ConflictError if there is one with another `cwd` or `env`, BusyError if there are too many.
        """
        body = {"name": name, "cwd": cwd, "env": dict(env or {})}
        answer = await self._api.json("POST", self._path, body=body, timeout=ENGINE_SECONDS)
        return self._shell(read(ShellInfo, answer))

    @method
    async def get(self, name: str = DEFAULT_SHELL) -> Shell[F]:
        """The shell of that name. Raises: NotFoundError, ConflictError if it has ended."""
        answer = await self._api.json("GET", f"{self._path}/{segment(name)}")
        return self._shell(read(ShellInfo, answer))

    @method
    async def list(self) -> tuple[Shell[F], ...]:
        """The shells that have not ended, oldest first."""
        found = read_items(ShellInfo, await self._api.json("GET", self._path))
        return tuple(self._shell(each) for each in found)

    def _shell(self, info: ShellInfo) -> Shell[F]:
        return Shell(self._link, self._path, info)

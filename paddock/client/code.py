"""Code of a session: cells, run to their end or followed to it, and their contexts."""

from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal, TypeAlias

from paddock.client.answers import read, read_items
from paddock.client.errors import NotPaddockError
from paddock.client.faces import F, Face, Link, method, stream
from paddock.client.requests import given, segment
from paddock.client.streams import answered
from paddock.contract.base import WORDS, example
from paddock.contract.code import (
    CodeContext,
    CodeError,
    CodeExit,
    CodePrinted,
    CodeResult,
    CodeStarted,
    CodeValue,
)

# The longest wait if neither the caller nor the level limits the cell's time; others may be first.
_LONGEST_SECONDS = 3600
_GRACE_SECONDS = 120.0


class CodeOutput(CodePrinted):
    """Text that a cell printed."""

    model_config = example({"stream": "stdout", "text": "hello\n"})

    stream: Annotated[Literal["stdout", "stderr"], WORDS]


CodeEvent: TypeAlias = CodeStarted | CodeOutput | CodeValue | CodeError | CodeExit
_MODELS: dict[str, type[CodeStarted | CodeValue | CodeError | CodeExit]] = {
    "start": CodeStarted,
    "result": CodeValue,
    "exception": CodeError,
    "exit": CodeExit,
}


class SessionCode(Face[F]):
    """The part of a session that runs code."""

    _path: str

    @method
    async def run_code(
        self,
        code: str,
        *,
        language: str | None = None,
        context: str | None = None,
        timeout: float | None = None,
    ) -> CodeResult:
        """Runs a cell and waits for its end; an exception in it is a result, not an error.

        Args:
            code: the cell, at most 256 KiB.
            language: `python`, `javascript`, `bash`, or a kernel of the image; None: the context's,
                or else `python`.
            context: the name of a context; None: the one with the language's name, which is made
                when it is first needed.
            timeout: seconds until it is interrupted; None: the level's default.

        Raises: PermissionDeniedError at levels without an interpreter, ValidationError for a
        language that the sandbox does not have, NotFoundError for an unknown context, BusyError,
        SandboxUnavailableError, AuditUnavailableError (nothing was run).

        A broken connection interrupts the cell.
        """
        body = given(code=code, language=language, context=context, timeout=timeout)
        wait = (timeout or _LONGEST_SECONDS) + _GRACE_SECONDS
        answer = await self._api.json("POST", f"{self._path}/code", body=body, timeout=wait)
        return read(CodeResult, answer)

    @stream
    def run_code_stream(
        self,
        code: str,
        *,
        language: str | None = None,
        context: str | None = None,
        timeout: float | None = None,
    ) -> AsyncGenerator[CodeEvent, None]:
        """Runs a cell and yields what comes of it, to its `CodeExit`.

        Leaving the stream early interrupts the cell, and so does a broken connection, which raises
        ConnectionLostError. Arguments and other errors are as for `run_code`.
        """
        body = given(code=code, language=language, context=context, timeout=timeout)
        return answered(
            *(self._api, f"{self._path}/code", body, _event),
            lambda event: isinstance(event, CodeExit),
            "the stream of the cell ends too soon",
        )


class CodeContexts(Face[F]):
    """The code contexts of a session: programs that keep names from cell to cell."""

    def __init__(self, link: Link, path: str) -> None:
        """`path` is the session's."""
        super().__init__(link)
        self._path = f"{path}/code/contexts"

    @method
    async def create(
        self, name: str | None = None, *, language: str = "python", cwd: str | None = None
    ) -> CodeContext:
        """Creates a context whose cells begin in that directory of the workspace.

        Raises: ConflictError if there is one of that name, BusyError if there are too many, and the
        errors of `run_code`.
        """
        body = given(name=name, language=language, cwd=cwd)
        return read(CodeContext, await self._api.json("POST", self._path, body=body))

    @method
    async def list(self) -> tuple[CodeContext, ...]:
        """The contexts, in the order of their creation."""
        return read_items(CodeContext, await self._api.json("GET", self._path))

    @method
    async def restart(self, name: str) -> CodeContext:
        """Begins a context anew, without its names. Raises: NotFoundError."""
        return await self._change(name, "restart")

    @method
    async def interrupt(self, name: str) -> CodeContext:
        """Interrupts the cell that the context executes. Raises: NotFoundError."""
        return await self._change(name, "interrupt")

    @method
    async def remove(self, name: str) -> CodeContext:
        """Ends a context, and the cell that it executes. Raises: NotFoundError."""
        path = f"{self._path}/{segment(name)}"
        return read(CodeContext, await self._api.json("DELETE", path))

    async def _change(self, name: str, action: str) -> CodeContext:
        path = f"{self._path}/{segment(name)}/{action}"
        return read(CodeContext, await self._api.json("POST", path, body={}))


def _event(name: str, data: Any) -> CodeEvent | None:
    if name in ("stdout", "stderr"):
        return read(CodeOutput, {"stream": name, **data})
    model = _MODELS.get(name)
    if model is None:
        raise NotPaddockError(f"the server sends events that are not Paddock's: {name[:64]}")
    return read(model, data)

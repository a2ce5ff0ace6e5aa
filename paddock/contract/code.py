"""Code: cells, what comes of them, and the contexts that execute them."""

import base64
from typing import Annotated, Any, Literal

from pydantic import Field

from paddock.contract.base import WORDS, Count, Model, Time, example
from paddock.contract.commands import AuditPosition
from paddock.contract.fields import KIB, Directory, MaxBytes
from paddock.contract.problem import Problem
from paddock.contract.requests import CWD_DESCRIPTION, LARGE_BODY, Body

MOST_CODE_BYTES = 256 * KIB
_COMMAND_ID = "8d3c0f5a1b2e4967"
CONTEXT_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_LANGUAGE = r"^[A-Za-z0-9][A-Za-z0-9+#._-]{0,31}$"
_BASE64 = "In base64."

ContextName = Annotated[
    str, Field(pattern=CONTEXT_NAME, max_length=64, examples=["analysis"], min_length=1)
]
Language = Annotated[
    str, Field(pattern=_LANGUAGE, max_length=32, examples=["python"], min_length=1)
]
_Status = Annotated[Literal["ok", "error", "interrupted", "timed_out", "died"], WORDS]

_VALUE: dict[str, Any] = {"main": True, "text": "42"}
_ERROR: dict[str, Any] = {
    "name": "ZeroDivisionError",
    "message": "division by zero",
    "traceback": 'Traceback (most recent call last):\n  File "<cell 2>", line 1, in <module>\n'
    "    1/0\n    ~^~\nZeroDivisionError: division by zero\n",
}
_END: dict[str, Any] = {
    "status": "ok",
    "execution_count": 1,
    "cut_bytes": 0,
    "restarted": False,
    "lost": False,
    "duration_ms": 4,
    "audit": {
        "seq": 5,
        "hash": "a3f5c8e1b2d4069788796a5b4c3d2e1f06b1f0e2d3c4b5a69788796a5b4c3d2e",
    },
}
_START: dict[str, Any] = {
    "context": "python",
    "language": "python",
    "cell": "5b1d9c7e20f3a846",
    "command_id": _COMMAND_ID,
}
_CONTEXT: dict[str, Any] = {
    "name": "analysis",
    "language": "python",
    "kernel": "python-3.11.2",
    "status": "idle",
    "cwd": "src",
    "execution_count": 3,
    "command_id": _COMMAND_ID,
    "created_at": "2026-03-04T09:30:12.482113Z",
}


class CodeValue(Model):
    """A value in every form that it has: as text, as a picture, as data."""

    SPARSE = True

    model_config = example(_VALUE)

    main: bool = Field(description="It is the value of the cell's last line.")
    text: str | None = None
    html: str | None = None
    markdown: str | None = None
    svg: str | None = None
    png: str | None = Field(default=None, description=_BASE64)
    jpeg: str | None = Field(default=None, description=_BASE64)
    pdf: str | None = Field(default=None, description=_BASE64)
    latex: str | None = None
    javascript: str | None = None
    value: Any = Field(default=None, description="The value itself, if it shows itself as JSON.")
    data: Any = Field(
        default=None,
        description="A data frame: `columns`, their `types`, the `index`, the first 1,000 `rows`, "
        "and the `total` of rows.",
    )
    chart: Any = Field(
        default=None,
        description="A figure: its `axes`, with titles and labels, and their `elements`: the "
        "`type` (line, bar, scatter, pie), the `label`, `x` and `y`.",
    )
    other: dict[str, str] | None = Field(default=None, description="By other MIME types.")

    @property
    def png_bytes(self) -> bytes | None:
        """The picture's bytes."""
        return None if self.png is None else base64.b64decode(self.png)


class CodeError(Model):
    """An exception of a cell."""

    model_config = example(_ERROR)

    name: str
    message: str
    traceback: str


class _CodeEnd(Model):
    status: _Status = Field(
        description="`error`: an exception; `died`: its program ended by itself; `interrupted` and "
        "`timed_out`: it was stopped."
    )
    execution_count: Count = Field(description="The cells that the context has executed.")
    cut_bytes: Count = Field(description="What was left out above the limits of a cell.")
    restarted: bool = Field(
        description="The context was begun anew for this cell, because its program had ended."
    )
    lost: bool = Field(
        description="The context's program has ended, and with it all names; the next cell begins "
        "it anew."
    )
    duration_ms: Count
    audit: AuditPosition


class _CodeStart(Model):
    context: str
    language: str
    cell: str
    command_id: str = Field(description="The command that is the context's program.")


class CodeResult(_CodeEnd, _CodeStart):
    """What came of a cell."""

    SPARSE = True

    model_config = example(
        {
            **_START,
            **_END,
            "stdout": "hello\n",
            "stderr": "",
            "results": [_VALUE],
            "error": None,
        }
    )

    stdout: str
    stderr: str
    results: list[CodeValue] = Field(description="In the order in which they were shown.")
    error: CodeError | None

    @property
    def ok(self) -> bool:
        """Whether the cell ended without an exception."""
        return self.status == "ok"

    @property
    def main(self) -> CodeValue | None:
        """The value of the last line."""
        return next((value for value in self.results if value.main), None)

    @property
    def text(self) -> str | None:
        """The value of the last line as text."""
        return None if self.main is None else self.main.text


class CodeStarted(_CodeStart):
    """The cell has begun."""

    model_config = example(_START)


class CodePrinted(Model):
    """Text that the cell printed."""

    model_config = example({"text": "hello\n"})

    text: str


class CodeExit(_CodeEnd):
    """The cell's end: the last event."""

    model_config = example(_END)


# The events of a cell's stream, with the model of their `data`.
CODE_EVENTS: dict[str, type[Model]] = {
    "start": CodeStarted,
    "stdout": CodePrinted,
    "stderr": CodePrinted,
    "result": CodeValue,
    "exception": CodeError,
    "exit": CodeExit,
    "error": Problem,
}


class CodeContext(Model):
    """A program in the sandbox that executes cells, and keeps their names."""

    model_config = example(_CONTEXT)

    name: str
    language: str
    kernel: str | None = Field(description="What executes the cells; null until it does.")
    status: Annotated[Literal["starting", "idle", "busy", "ended"], WORDS] = Field(
        description="`ended`: its names are lost, and its next cell begins it anew."
    )
    cwd: str | None = Field(description="Where it began; null: in the workspace.")
    execution_count: Count
    command_id: str | None = Field(description="The command that is its program.")
    created_at: Time


class CodeContexts(Model):
    """A session's contexts, in the order of their creation."""

    model_config = example({"items": [_CONTEXT], "next": None})

    items: list[CodeContext]
    next: None


class CodeBody(Body):
    """A cell."""

    MOST_BYTES = LARGE_BODY

    code: Annotated[str, MaxBytes(MOST_CODE_BYTES)]
    language: Language | None = Field(
        default=None,
        description="`python`, `javascript`, `bash`, or a kernel of the image; by default the "
        "context's, or else `python`.",
    )
    context: ContextName | None = Field(
        default=None,
        description="By default the context with the language's name, which is made when it is "
        "first needed.",
    )
    timeout: Annotated[float, Field(ge=0.1, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Seconds until it is interrupted, up to the level's maximum; by default the "
        "level's default.",
    )


class CodeContextBody(Body):
    """A context."""

    name: ContextName | None = Field(default=None, description="By default a new name.")
    language: Language = "python"
    cwd: Directory | None = Field(default=None, description=CWD_DESCRIPTION)

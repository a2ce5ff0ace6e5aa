"""The frames of a terminal's WebSocket: binary ones are its bytes, text ones are JSON. Pure."""

from typing import assert_never

from api.shape.objects import parse_object, validated
from orchestrator.work.terminals.open_terminal import OpenTerminal
from orchestrator.work.terminals.viewers import EndShown, LossShown, Shown, Size
from paddock.contract.base import Model
from paddock.contract.live_terminals import (
    ResizeFrame,
    TerminalEnd,
    TerminalExit,
    TerminalLost,
    TerminalOpened,
    TerminalResized,
    TerminalSize,
    WatchedTerminal,
)


def opened(live: OpenTerminal, *, writable: bool) -> Model:
    """The first frame for a viewer."""
    columns, rows = live.viewers.size
    return TerminalOpened(
        terminal=WatchedTerminal(
            id=live.id,
            kind="tool" if live.record.kind == "tool" else "shell",
            tool=live.record.tool,
            writable=writable,
            cols=columns,
            rows=rows,
        )
    )


def frame(shown: Shown) -> bytes | Model:
    """The frame for what a terminal shows."""
    match shown:
        case bytes():
            return shown
        case Size(columns, rows):
            return TerminalResized(resize=TerminalSize(cols=columns, rows=rows))
        case LossShown(count):
            return TerminalLost(lost=count)
        case EndShown(ending, reason):
            exit_code = None if ending is None else ending.exit_code
            signal = None if ending is None else ending.signal
            return TerminalExit(exit=TerminalEnd(exit_code=exit_code, signal=signal, reason=reason))
        case _:
            assert_never(shown)


def wanted_size(text: str) -> Size:
    """The size that a client's text frame asks for. Raises: ValidationError."""
    asked = validated(ResizeFrame, parse_object(text.encode("utf-8", "surrogatepass"))).resize
    return Size(asked.cols, asked.rows)

"""A command's output as events of OpenHands, in the order of its bytes. Pure.

`order` counts bytes: that of an event is the number of bytes up to its end, and that of the last
event, which has the exit code, is one more. So whoever has an event continues after its order.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from api.compat.replies import moment
from paddock.contract.commands import CommandOutput, Exit

# As the client itself says it.
_TIMED_OUT = -1


def events_of(command_id: str, page: CommandOutput, after: int) -> Iterator[dict[str, Any]]:
    """The events of a page that was read from `after` on."""
    position, found = after, len(page.output)
    for number, piece in enumerate(page.output):
        end = page.output[number + 1].offset if number + 1 < found else page.next
        texts: dict[str, str] = {piece.stream: piece.text}
        if piece.offset > position:
            texts["stderr"] = _gap(position, piece.offset) + texts.get("stderr", "")
        position = end
        yield _event(command_id, end, piece.time, texts, None)
    if page.exit is None or (page.next < page.exit.output_bytes and not page.lost):
        return
    total = page.exit.output_bytes
    told = _gap(page.next, total) if page.next < total else ""
    if page.exit.timed_out:
        told += f"Command timed out after {page.exit.duration_ms / 1000:.3g} seconds"
    elif page.exit.error is not None:
        told += page.exit.error
    yield _event(command_id, total + 1, None, {"stderr": told} if told else {}, _code(page.exit))


def _event(
    command_id: str, order: int, time: datetime | None, texts: dict[str, str], code: int | None
) -> dict[str, Any]:
    return {
        "kind": "BashOutput",
        "id": f"{command_id}-{order}",
        "timestamp": moment(time),
        "command_id": command_id,
        "order": order,
        "stdout": texts.get("stdout"),
        "stderr": texts.get("stderr"),
        "exit_code": code,
    }


def _code(ended: Exit) -> int:
    return _TIMED_OUT if ended.timed_out or ended.exit_code is None else ended.exit_code


def _gap(start: int, end: int) -> str:
    return f"[{end - start} bytes of output are not kept]\n"

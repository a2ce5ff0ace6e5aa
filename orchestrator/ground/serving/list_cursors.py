"""Cursors of lists of sessions: when the last one was created, and its key. No I/O."""

import base64

from orchestrator.ground.errors import ValidationError

_MOST_CHARACTERS = 128


def encode_cursor(position: tuple[str, str]) -> str:
    """The text of a position."""
    return base64.urlsafe_b64encode(" ".join(position).encode()).decode()


def decode_cursor(cursor: str) -> tuple[str, str]:
    """The position of a text. Raises: ValidationError."""
    try:
        created_at, key = (
            base64.urlsafe_b64decode(cursor[: _MOST_CHARACTERS + 1]).decode().split(" ")
        )
    except ValueError:
        raise ValidationError("cursor is not valid", field="cursor") from None
    return created_at, key

"""A model's answer, from what an endpoint sends: at once or in pieces, in any form in use. Pure."""

import json
from collections.abc import Callable
from typing import Any

from orchestrator.work.models.errors import ModelError, ModelFailure
from orchestrator.work.models.extras import Extras, merge, of_message, stored
from orchestrator.work.models.metering import CallMeter, TokenUsage, most, stated
from orchestrator.work.models.tool_calls import AnswerCalls, CallPieces, texts_of

# Bytes of one answer: its text, its calls, and what comes beside them.
_MOST_TEXT = 1024 * 1024
# Characters that begin or separate values in one JSON text; the cost of parsing grows with them.
_MOST_PARTS = 128 * 1024
# Members of one piece besides text and calls.
_MOST_MEMBERS = 64
_LONGEST_REASON = 32


class Finished(str):
    """How an answer ended, in the endpoint's word; the last piece of it.

    `called` are its calls, and `extra` is what was said beside them, as a message keeps it.
    """

    called = AnswerCalls()
    extra = ""

    @classmethod
    def calling(cls, reason: str, called: AnswerCalls, extra: str) -> "Finished":
        """An end with these calls of tools."""
        end = cls(reason)
        end.called, end.extra = called, extra
        return end


class AnswerReader:
    """One answer; `model` is the operator's name of the model."""

    def __init__(self, model: str, meter: CallMeter, readable: Callable[[str], str]) -> None:
        """`readable` shortens what an endpoint says, and cuts the key out of it."""
        self._model = model
        self._meter = meter
        self._readable = readable
        self._sent: TokenUsage = meter.usage
        self._stated: TokenUsage | None = None
        self._reason: str | None = None
        self._calls = CallPieces()
        self._texts: dict[str, list[str]] = {}
        self._others: dict[str, Any] = {}
        self._size = 0
        self._begun = False

    def add(self, data: bytes, member: str) -> str:
        """Takes one JSON text, and returns the text in it; `member` is `delta` or `message`.

        Raises: ModelError.
        """
        chunk = _parsed(data)
        self._check_error(chunk)
        self._stated = most(self._stated, stated(chunk.get("usage")))
        choices = chunk.get("choices")
        if not isinstance(choices, list | None):
            raise _nonsense()
        if not choices or not isinstance(choices[0], dict):
            return ""
        self._begun = True
        message, reason = choices[0].get(member), choices[0].get("finish_reason")
        if isinstance(reason, str) and reason:
            self._reason = reason[:_LONGEST_REASON]
        return self._message(message) if isinstance(message, dict) else ""

    def _message(self, message: dict[str, Any]) -> str:
        text = texts_of(message.get("content"))
        size = self._calls.add(message.get("tool_calls")) + _bytes(text)
        others = dict(of_message(message))
        if len(others) > _MOST_MEMBERS:
            raise ModelError(
                ModelFailure.TOO_LARGE, f"the answer has more than {_MOST_MEMBERS} members"
            )
        for name, value in others.items():
            size += _bytes(name) + self._other(name, value)
        if size:
            self._size += size
            if self._size > _MOST_TEXT:
                raise ModelError(
                    ModelFailure.TOO_LARGE, f"the answer has more than {_MOST_TEXT} bytes"
                )
            self._meter.usage = self._sent._replace(output_tokens=self._size)
        return text

    def _other(self, name: str, value: Any) -> int:
        """Takes a piece of another member; texts of all pieces make one. Returns its bytes."""
        if isinstance(value, str):
            self._texts.setdefault(name, []).append(value)
            return _bytes(value)
        merge(self._others, name, value)
        return len(json.dumps(value))

    def end(self, *, complete: bool) -> Finished:
        """The end; `complete`: the endpoint has said that nothing follows. Raises: ModelError."""
        called = self._calls.called
        if self._reason is None and not (complete and self._begun):
            raise ModelError(ModelFailure.BROKEN, "the endpoint's answer breaks off")
        self._meter.usage = self._stated or self._meter.usage
        texts = {name: "".join(pieces) for name, pieces in self._texts.items()}
        extra = stored(self._model, Extras(self._others | texts, self._calls.extras))
        reason = self._reason or ("tool_calls" if called.calls else "stop")
        return Finished.calling(reason, called, extra)

    def _check_error(self, chunk: dict[str, Any]) -> None:
        error = chunk.get("error")
        if not error:
            return
        message = error.get("message") if isinstance(error, dict) else error
        detail = f": {self._readable(message)}" if isinstance(message, str) and message else ""
        raise ModelError(ModelFailure.BROKEN, f"the endpoint answers with an error{detail}")


def _parsed(data: bytes) -> dict[str, Any]:
    """Raises: ModelError."""
    if sum(map(data.count, (b",", b"[", b"{", b":"))) > _MOST_PARTS:
        raise ModelError(ModelFailure.TOO_LARGE, "the endpoint sends more than an answer has")
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise _nonsense() from None
    if not isinstance(found, dict):
        raise _nonsense()
    return found


def _nonsense() -> ModelError:
    return ModelError(ModelFailure.BROKEN, "the endpoint's answer is not one of a model")


def _bytes(text: str) -> int:
    return len(text.encode(errors="replace"))

"""What an endpoint says beside text and calls, and may demand to get back: reasoning, signatures.

It is kept as JSON text, `{"model", "message": {…}, "calls": {"0": {…}}}`: members of the
assistant's message that the protocol doesn't have, and those of its calls, by their places. Pure.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

# Characters that are kept of one message.
MOST_EXTRA = 96 * 1024
# Characters that are kept of one text in it, from its beginning.
_MOST_TEXT = 64 * 1024
_OF_MESSAGE = frozenset({"role", "content", "tool_calls", "function_call"})
_OF_CALL = frozenset({"index", "id", "type", "function"})
_OF_FUNCTION = frozenset({"name", "arguments"})


class Extras(NamedTuple):
    """The extra members of one message, and those of its calls."""

    message: Mapping[str, Any]
    calls: Mapping[int, Mapping[str, Any]]


NO_EXTRAS = Extras({}, {})


def of_message(message: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What a message has besides the protocol's members."""
    return _others(message, _OF_MESSAGE)


def of_call(call: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """What a call has besides the protocol's members; those of its function as `function`."""
    yield from _others(call, _OF_CALL)
    function = call.get("function")
    if isinstance(function, dict) and (found := dict(_others(function, _OF_FUNCTION))):
        yield "function", found


def _others(given: Mapping[str, Any], known: frozenset[str]) -> Iterator[tuple[str, Any]]:
    return (each for each in given.items() if each[0] not in known and each[1] is not None)


def merge(into: dict[str, Any], name: str, value: Any) -> None:
    """Adds a piece: lists and objects grow, anything else is replaced."""
    old = into.get(name)
    if isinstance(old, list) and isinstance(value, list):
        old.extend(value)
    elif isinstance(old, dict) and isinstance(value, dict):
        for each in value.items():
            merge(old, *each)
    else:
        into[name] = value


def stored(model: str, extras: Extras) -> str:
    """The text that is kept of a model's message; empty without anything."""
    if not extras.message and not extras.calls:
        return ""
    left = MOST_EXTRA - 1024
    message: dict[str, Any] = {}
    calls: dict[str, dict[str, Any]] = {}
    # What is small goes first: a signature is needed more than a long text.
    of_calls = [(str(n), *each) for n, call in extras.calls.items() for each in call.items()]
    every = [*of_calls, *(("", *each) for each in extras.message.items())]
    texts = [(place, name, value, json.dumps(value)) for place, name, value in every]
    for place, name, value, text in sorted(texts, key=lambda each: len(each[3])):
        around = len(json.dumps(name)) + len(place) + 16
        kept, size = value, len(text)
        for most in (_MOST_TEXT, left // 16):
            if size + around > left and isinstance(value, str):
                kept = value[:most]
                size = len(json.dumps(kept))
        if size + around > left:
            continue
        left -= size + around
        (calls.setdefault(place, {}) if place else message)[name] = kept
    return json.dumps({"model": model, "message": message, "calls": calls})


def read(text: str) -> tuple[str, Extras]:
    """The model and what it said, from text that is kept; nothing from any other text."""
    try:
        found = json.loads(text) if 0 < len(text) <= MOST_EXTRA else {}
        message = found.get("message", {})
        calls = {int(place): each for place, each in found.get("calls", {}).items()}
        model = found.get("model", "")
    except (ValueError, AttributeError, RecursionError):
        return "", NO_EXTRAS
    objects = all(isinstance(each, dict) for each in (message, *calls.values()))
    if not objects or not isinstance(model, str):
        return "", NO_EXTRAS
    return model, Extras(message, calls)


def names(text: str, model: str) -> set[str]:
    """The members that a model gets back with a message, from text that is kept."""
    said_by, extras = read(text)
    if said_by != model:
        return set()
    return {*extras.message, *(name for call in extras.calls.values() for name in call)}


def sent_with(form: dict[str, Any], extras: Extras) -> dict[str, Any]:
    """An assistant's message in the form of the protocol, with what its endpoint said beside it."""
    calls = []
    for place, call in enumerate(form.get("tool_calls", ())):
        own = dict(extras.calls.get(place, {}))
        function = own.pop("function", {})
        calls.append({**own, **call, "function": {**function, **call["function"]}})
    return {**extras.message, **form, **({"tool_calls": calls} if calls else {})}

"""Secrets are removed from texts, in every usual encoding, and nothing else is."""

import base64
import json
import re
import sys
import time
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sandbox_agent.decide import escapes
from sandbox_agent.decide.redaction import MARK, RedactedStream, Redactor, Window

TOKEN = "s3cr3t/To+ken=é✓"
# Realistic values: no value shares a character with the mark.
_SECRETS = st.text(
    st.characters(codec="utf-8", exclude_characters="\0[]redacted"), min_size=8, max_size=40
)
# Text around a value.
_AROUND = st.text(st.sampled_from("ab /%+\\\"'{}\n-_=é✓0123"), max_size=12)
# A partial escape before a value would absorb the value's first characters.
_BEFORE = _AROUND.filter(lambda text: not re.search(r"%[0-9a-f]?$", text))


@given(st.binary(max_size=30), st.binary(max_size=30), st.sampled_from(["plain", "base64", "hex"]))
def test_values_between_any_bytes(before: bytes, after: bytes, form: str) -> None:
    """Output need not be text: what is no UTF-8 hides nothing, and stays."""
    value = TOKEN.encode()
    told = {"base64": base64.b64encode(value), "hex": value.hex().encode()}.get(form, value)
    assume(not re.search(rb"[0-9A-Za-z+/=_%\\\s-]$", before[-1:]))
    assume(not re.match(rb"[0-9A-Za-z+/=_\s-]", after[:1]))
    cut = Redactor([TOKEN]).data(before + told + after)
    assert TOKEN.encode()[:8] not in cut
    assert told[:8] not in cut
    assert cut.startswith(before)
    assert cut.endswith(after)


def _all_percent(text: str, digits: str = "%%%02X") -> str:
    return "".join(digits % byte for byte in text.encode())


def _wrapped(text: str) -> str:
    return "\n".join(text[at : at + 11] for at in range(0, len(text), 11))


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "url": lambda text: quote(text, safe=""),
    "path": quote,
    "form": quote_plus,
    "component": lambda text: quote(text, safe="!~*'()"),
    "every byte": _all_percent,
    "lower case": lambda text: _all_percent(text, "%%%02x"),
    "json": json.dumps,
    "json unicode": lambda text: json.dumps(text, ensure_ascii=False),
    "json twice upper": lambda text: json.dumps(text).replace("\\u00e9", "\\u00E9"),
    "javascript": lambda text: json.dumps(text).replace("/", "\\/"),
    "python": repr,
    "python ascii": ascii,
    "python bytes": lambda text: repr(text.encode()),
    "hex": lambda text: text.encode().hex(),
    "HEX": lambda text: text.encode().hex().upper(),
    "hex lines": lambda text: _wrapped(text.encode().hex()),
    "base64": _base64,
    "base64 url": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "base64 bare": lambda text: _base64(text).rstrip("="),
    "base64 lines": lambda text: _wrapped(_base64(text)),
    "basic": lambda text: "Basic " + _base64(f"user:{text}"),
    "basic longer": lambda text: "Basic " + _base64(f"users:{text}\n"),
    "basic longest": lambda text: "Basic " + _base64(f"a user:{text}!!"),
    "base64 in url": lambda text: quote(_base64(f"x{text}"), safe=""),
    "base64 in json": lambda text: json.dumps(_wrapped(_base64(text))),
}


def remains(text: str, secret: str) -> bool:
    """Whether the secret can still be found by undoing any one encoding."""
    return any(
        needle in text
        for needle in (
            secret,
            *(
                encode(secret)
                for name, encode in ENCODINGS.items()
                if "basic" not in name and "base64" not in name
            ),
        )
    )


@pytest.mark.parametrize("name", ENCODINGS)
def test_a_value_is_found_in_every_encoding(name: str) -> None:
    encoded = ENCODINGS[name](TOKEN)
    cut = Redactor([TOKEN]).text(f"before {encoded} after")
    assert MARK in cut
    assert cut.startswith("before ")
    assert cut.endswith(" after")
    # Only encoded text that shares characters with the value may remain.
    left = cut.removeprefix("before ").removesuffix(" after").replace(MARK, "")
    assert len(left) < 24
    assert not remains(cut, TOKEN)


@given(_SECRETS, st.sampled_from(sorted(ENCODINGS)), _BEFORE, _AROUND)
def test_no_value_is_left(secret: str, name: str, before: str, after: str) -> None:
    redactor = Redactor([secret])
    cut = redactor.text(before + ENCODINGS[name](secret) + after)
    assert MARK in cut
    assert not remains(cut, secret)


@given(_SECRETS, st.text(max_size=60))
def test_texts_without_a_value_stay_as_they_are(secret: str, text: str) -> None:
    redactor = Redactor([secret])
    head = secret.encode()[:8]
    assume(head not in text.encode() and redactor.spans(text.encode()) == [])
    assert redactor.text(text) is text
    assert Redactor().text(text) is text


@given(st.lists(st.text("ab", min_size=8, max_size=12), min_size=1, max_size=4),
       st.text("ab", max_size=80))  # fmt: skip
def test_values_that_overlap_themselves_and_one_another(secrets: list[str], text: str) -> None:
    """Every character that belongs to an occurrence is cut, and no other."""
    covered = [False] * len(text)
    for secret in secrets:
        for start in range(len(text)):
            size = len(secret)
            # At the end a prefix counts as an occurrence, because texts are cut there.
            rest = text[start:]
            if text.startswith(secret, start) or (len(rest) >= 8 and secret.startswith(rest)):
                covered[start : start + size] = [True] * min(size, len(rest))
    expected, last = "", False
    for char, hidden in zip(text, covered, strict=True):
        expected += "" if hidden and last else MARK if hidden else char
        last = hidden
    assert Redactor(secrets).text(text) == expected


def test_what_is_left_of_a_value_that_was_cut() -> None:
    for size in range(8, 40):
        secret = "0123456789abcdefghijklmnopqrstuvwxyzABCD"
        redactor = Redactor([secret])
        beginning = secret[:size]
        assert redactor.text(f"word {beginning}") == f"word {MARK}", size
        assert (
            redactor.text(f"not allowed: {beginning}...; ask") == f"not allowed: {MARK}...; ask"
        ), size
        assert redactor.text(f"word {beginning}…") == f"word {MARK}…", size
        assert redactor.text(f"{beginning}[90 more bytes]") == f"{MARK}[90 more bytes]", size
        # Anywhere else, other text may begin in the same way.
        assert redactor.text(f"{beginning}! {beginning} too") == f"{beginning}! {beginning} too", (
            size
        )


def test_values_that_are_too_short_are_not_looked_for() -> None:
    assert Redactor(["1234567"]).text("1234567") == "1234567"
    assert Redactor(["éééé"]).text("éééé") == MARK
    assert not Redactor([""])


def test_objects_are_cut_in_values_and_names() -> None:
    redactor = Redactor(["0123456789"])
    value = {"a0123456789": ["x", {"b": "0123456789!"}, 5, None, True], "c": ("0123456789",)}
    assert redactor.value(value) == {
        f"a{MARK}": ["x", {"b": f"{MARK}!"}, 5, None, True],
        "c": [MARK],
    }


@given(st.binary(max_size=200), st.lists(_SECRETS, max_size=3))
def test_any_bytes_and_any_text(data: bytes, secrets: list[str]) -> None:
    redactor = Redactor(secrets)
    redactor.data(data)
    redactor.text(data.decode("utf-8", "surrogateescape"))
    redactor.text(data.decode("latin-1"))


# Streams


def released(stream: RedactedStream, window: Window | None) -> bytes:
    return b"" if window is None else stream.release(window, window.spans())


def fed(stream: RedactedStream, data: bytes) -> bytes:
    stream.add(data)
    return released(stream, stream.window())


def finished(stream: RedactedStream) -> bytes:
    return released(stream, stream.window(last=True))


@given(
    st.lists(
        st.sampled_from(["0123456789abcdef", "xyz", "0123456789", "%30123456789"]), max_size=8
    ),
    st.data(),
)
def test_a_stream_is_cut_wherever_its_pieces_end(parts: list[str], data: st.DataObject) -> None:
    secrets = ["0123456789abcdef", "789abcdef0123"]
    redactor = Redactor(secrets)
    whole = "-".join(parts).encode()
    stream, out, position = RedactedStream(lambda: redactor), b"", 0
    while position < len(whole):
        size = data.draw(st.integers(1, 300))
        out += fed(stream, whole[position : position + size])
        position += size
    out += finished(stream)
    assert out == redactor.data(whole)
    assert finished(stream) == b""


def test_a_stream_holds_back_little() -> None:
    redactor = Redactor(["0123456789"])
    stream = RedactedStream(lambda: redactor)
    told = sum(len(fed(stream, b"x")) for _ in range(10_000))
    assert 10_000 - 2 * redactor.margin <= told < 10_000
    assert told + len(finished(stream)) == 10_000


def test_a_stream_without_values_is_handed_on_at_once() -> None:
    known = Redactor()
    stream = RedactedStream(lambda: known)
    assert fed(stream, b"0123456789") == b"0123456789"
    known = Redactor(["0123456789"])
    assert fed(stream, b"01234") + fed(stream, b"56789") + finished(stream) == MARK.encode()


# Time


@given(
    st.lists(
        st.sampled_from(
            [b"%41", b"%", b"\\", b"\\u0041", b"\\ud83d\\ude00", b"\\xe9", b"\\n", b" ", b"0123456"]
        ),
        max_size=60,
    )
)
def test_a_text_is_undone_in_blocks_as_in_one(parts: list[bytes]) -> None:
    data = b"".join(parts)
    for pattern, mark in ((escapes._PERCENT, b"%"), (escapes._BACKSLASH, b"\\")):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(escapes, "_BLOCK_BYTES", 32)
            patch.setattr(escapes, "_SURE_BYTES", 20)
            assert escapes._split(data, pattern, mark) == pattern.split(data)


_ESCAPES = [b"%41", b"\\x80", b"\\u0041", b"\\xc3\\xa9", b"\\n", b"\\\\", b"%25", b"Y W ", b"6 1 "]


@pytest.mark.slow
@pytest.mark.parametrize("escape", _ESCAPES)
def test_no_call_is_made_for_each_escape(escape: bytes) -> None:
    """Not even beside the value itself, for which there is only one look-up."""
    secret = "01234567é"
    encoded = [secret.encode(), secret.encode().hex().encode(), base64.b64encode(secret.encode())]
    redactor, calls = Redactor([secret]), 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    data = escape * 50_000 + b" ".join(encoded)
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        cut = redactor.data(data)
    finally:
        sys.setprofile(before)
    assert secret.encode() not in cut
    assert cut.count(MARK.encode()) == 3
    assert calls < 1000
    assert escapes._BLOCK_BYTES <= 64 * 1024


def _seconds(redactor: Redactor, data: bytes) -> float:
    started = time.process_time()
    redactor.data(data)
    return time.process_time() - started


_HOSTILE = {
    "one letter": ("a" * 32_768, b"a" * 500_000),
    "one letter, just not": ("a" * 32_767 + "b", b"a" * 500_000),
    "ends too early": ("a" * 16_000 + "b" * 16_000, (b"a" * 15_999 + b"c") * 30),
    "two letters": ("ab" * 16_384, b"ab" * 250_000),
    "border of one": ("a" + "b" * 32_000 + "a", (b"a" + b"b" * 32_000) * 15),
    "beginnings": ("0123456789" * 3000, b"01234567" * 62_500),
    "escapes": ("\\" * 1000, b"\\" * 500_000),
    "percent": ("%" * 1000, b"%25" * 165_000),
    "unicode": ("é" * 1000, b"\\u00e9" * 80_000),
    "spaces": ("a" * 1000, b"YWFh " * 100_000),
    "hex": ("aaaaaaaa" * 100, b"61" * 250_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", _HOSTILE)
def test_time_grows_with_the_text_alone(name: str) -> None:
    secret, data = _HOSTILE[name]
    redactor = Redactor([secret])
    half, whole = (
        min(_seconds(redactor, part) for _ in range(2)) for part in (data[: len(data) // 2], data)
    )
    # A quadratic search would take four times as long; short times are not compared.
    assert whole < 0.3 or whole < half * 3.2, (half, whole)
    assert whole < 10


def test_names_that_are_known_stay_and_all_others_are_searched() -> None:
    redactor = Redactor(["exit_code", "cut_bytes"])
    members = {"exit_code": 0, "an exit_code": "exit_code", "cut_bytes": {"exit_code": ["x"]}}
    assert redactor.members(members) == {
        "exit_code": 0,
        "an exit_code": MARK,
        "cut_bytes": {MARK: ["x"]},
    }
    assert redactor.members(members, {"exit_code"}) == {
        "exit_code": 0,
        f"an {MARK}": MARK,
        MARK: {MARK: ["x"]},
    }
    assert Redactor().members(members, ()) == members

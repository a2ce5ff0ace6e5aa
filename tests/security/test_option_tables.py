"""The option tables, compared with the image's programs."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from images import base
from sandbox_agent.decide.options import _FIND_FILE, _FIND_PLAIN, _FIND_VALUE, SAFE
from tests.support.limits import PROGRAM_SECONDS
from tests.support.traced_box import TracedBox

# Without a URL it always ends, but on a busy host not soon.
_CURL_SECONDS = 20.0
# The agent runs these itself.
_BUILTIN = {"which", "neofetch"}
# Programs that parse their options with getopt; find and curl have their own parsers.
_GETOPT = sorted(SAFE.keys() - _BUILTIN - {"find", "curl"})
# No program has an option of this letter.
_NO_LETTER = "~"


@pytest.fixture(scope="module")
def traced(sandbox_image: str) -> Iterator[TracedBox]:
    with (
        closing(base.connect(PROGRAM_SECONDS)) as client,
        TracedBox(client, sandbox_image) as box,
    ):
        yield box


def said(traced: TracedBox, *argv: str, seconds: float = 0.5) -> str:
    """The program's output; it runs unchecked, in a temporary workspace."""
    return traced.run(list(argv), [], checked=False, seconds=seconds).output


@pytest.mark.parametrize("name", _GETOPT)
def test_long_options_take_what_the_table_says(traced: TracedBox, name: str) -> None:
    for word in SAFE[name].long.split():
        option = f"--{word.rstrip('=?')}"
        takes_value = "doesn't allow an argument" not in said(traced, name, f"{option}=x")
        needs_value = "requires an argument" in said(traced, name, option)
        assert (takes_value, needs_value) == (word[-1] in "=?", word[-1] == "="), option
        assert "unrecognized option" not in said(traced, name, f"{option}=x"), option


@pytest.mark.parametrize("name", _GETOPT)
def test_short_options_take_what_the_table_says(traced: TracedBox, name: str) -> None:
    short = SAFE[name].short
    for at, letter in enumerate(short):
        if letter == ":":
            continue
        colons = len(short[at + 1 :]) - len(short[at + 1 :].lstrip(":"))
        # If a letter takes a value, the next letter is its value.
        refused = f"invalid option -- '{_NO_LETTER}'" in said(
            traced, name, f"-{letter}{_NO_LETTER}"
        )
        needs_value = "option requires an argument" in said(traced, name, f"-{letter}")
        assert (not refused, needs_value) == (colons > 0, colons == 1), letter


@pytest.mark.parametrize("name", _GETOPT)
def test_a_program_has_no_option_of_the_letter_that_none_has(traced: TracedBox, name: str) -> None:
    assert f"invalid option -- '{_NO_LETTER}'" in said(traced, name, f"-{_NO_LETTER}")


def test_find_takes_what_the_table_says(traced: TracedBox) -> None:
    complaint = "unknown predicate `-nope'"
    for word in _FIND_PLAIN.split():
        # find exits at these words.
        if word.startswith("-") and word not in {"-help", "--help", "-version", "--version"}:
            assert complaint in said(traced, "find", word, "-nope"), word
    for word in [*_FIND_VALUE.split(), *_FIND_FILE.split()]:
        output = said(traced, "find", word, "-nope")
        assert complaint not in output, word
        assert f"unknown predicate `{word}'" not in output, word


def test_curl_takes_what_the_table_says(traced: TracedBox) -> None:
    table = SAFE["curl"]
    for word in table.long.split():
        output = said(traced, "curl", f"--{word.rstrip('=?')}", seconds=_CURL_SECONDS)
        assert "is unknown" not in output, word
        assert ("requires parameter" in output) == word.endswith("="), word
    for at, letter in enumerate(table.short):
        if letter != ":":
            output = said(traced, "curl", f"-{letter}", seconds=_CURL_SECONDS)
            assert "is unknown" not in output, letter
            assert ("requires parameter" in output) == (table.short[at + 1 : at + 2] == ":"), letter

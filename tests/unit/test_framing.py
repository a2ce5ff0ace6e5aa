"""Prompts, echoes and outputs are distinguished, however the bytes are split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.work.terminals.framing import Framing, Output
from tests.support.tool import Pattern

PROMPT = "db=> "
READY = r"^[a-z]+=>[\s]*$"


def framing(limit: int = 1000) -> Framing:
    framing = Framing(Pattern(READY), limit)
    framing.feed(b"psql 15\r\n" + PROMPT.encode())
    assert framing.prompt == PROMPT
    return framing


def answer(sent: str, data: bytes, **members: int) -> tuple[str | None, Output]:
    frame = framing(**members)
    frame.begin(sent, PROMPT)
    frame.feed(data)
    return frame.prompt, frame.output()


def test_the_first_prompt_has_no_line_before_it() -> None:
    frame = Framing(Pattern(READY), 100)
    assert frame.prompt is None
    frame.feed(b"hello\r\nwo")
    assert frame.output() == Output("hello\nwo", False)
    frame.feed(b"rld\r\ndb=>")
    assert frame.prompt == "db=>"
    assert frame.output() == Output("hello\nworld", False)


@pytest.mark.parametrize(
    ("sent", "data", "output"),
    [
        ("select 1;", b"select 1;\r\n1\r\ndb=> ", "1"),
        ("select 1;", b"select 1;\r\ndb=> ", ""),
        ("select 1;", b"select 1;\r\n\r\n1\r\n\r\ndb=> ", "\n1\n"),
        # Readline: bracketed paste off, output, paste on.
        ("x", b"x\r\n\x1b[?2004l\r1\r\n\x1b[?2004hdb=> ", "1"),
        # Without an echo nothing is removed, not even later text that looks like one.
        ("x", b"1\r\ndb=> ", "1"),
        ("x", b"\r\nx\r\ndb=> ", "\nx"),
        ("x", b"db=> ", ""),
        # A tool that corrects or redraws its echo, and the longest possible echo.
        ("abc", b"abx\bc\r\nout\r\ndb=> ", "out"),
        ("abc", b"\rdb=> abc\r\nout\r\ndb=> ", "out"),
        ("🐘" * 8192, "🐘".encode() * 8192 + b"\r\nout\r\ndb=> ", "out"),
        # Prompts in the output, and output that only looks like the echo's second line.
        ("x", b"x\r\ndb=> \r\ndb=> x\r\nend\r\ndb=> ", "db=> \ndb=> x\nend"),
        ("ab", b"a\r\nb\r\ndb=> ", "a\nb"),
        # Only the final state of a progress bar's line counts.
        ("x", b"x\r\n 1%\r50%\r\x1b[Kdone\r\ndb=> ", "done"),
        ("x", b"x\r\n 1%\r\x1b[2Kdb=> ", ""),
    ],
)
def test_output_is_between_echo_and_prompt(sent: str, data: bytes, output: str) -> None:
    for pieces in (data,), tuple(bytes([byte]) for byte in data):
        frame = framing()
        frame.begin(sent, PROMPT)
        for piece in pieces:
            frame.feed(piece)
        assert frame.prompt is not None
        assert frame.output() == Output(output, False)


@pytest.mark.parametrize(
    "data",
    [
        b"",  # the earlier prompt
        b"db=",  # the beginning of an echo that looks like a prompt
        b"db=> ",
        b"db=> \r\n",
        b"db=> \r\n42db=> ",  # it might be data
        b"db=> \r\ndb=> \r\n",
        b"db=> \r\n db=> ",
        b"db=> \r\ndb=> x",
    ],
)
def test_this_is_no_prompt(data: bytes) -> None:
    prompt, _ = answer(PROMPT, data)
    assert prompt is None


@pytest.mark.parametrize(
    ("data", "prompted"),
    [
        (b"x\r\n1\r\ndb=> ", False),
        (b"x\r\n1\r\ndb=> a notice", False),  # an incomplete line
        (b"x\r\n1\r\ndb=> a notice\r\n", True),
        (b"x\r\n1\r\ndb=> a notice\r\nand more\r\n", True),
        (b"x\r\n1\r\ndb=> a notice\r\ndb-> ", False),  # apparently another prompt
        (b"x\r\n1\r\n", False),
        # An echo alone is not another prompt, however the tool prints it.
        (b"x\r\n", False),
        (b"\r\n", False),
        (b"*\r\n", False),
    ],
)
def test_lines_may_follow_the_prompt(data: bytes, prompted: bool) -> None:
    frame = framing()
    frame.begin("x", PROMPT)
    for byte in data:
        frame.feed(bytes([byte]))
    assert frame.prompted is prompted


def test_what_is_said_at_rest_has_no_prompt_in_it() -> None:
    frame = framing()
    frame.rest()
    for data, text in (
        (b"a not", "a not"),
        (b"ice\r\n", "a notice"),
        (b"and another\r\ndb=> ", "a notice\nand another"),
    ):
        frame.feed(data)
        assert frame.output().text == text
    assert frame.prompt == PROMPT
    frame.rest()
    assert frame.output() == Output("", False)


def test_a_prompt_is_not_trimmed() -> None:
    frame = Framing(Pattern("^db=> $"), 100)
    frame.feed(b"db=>")
    assert frame.prompt is None
    frame.feed(b" ")
    assert frame.prompt == "db=> "


def test_output_is_cut_at_its_limit_and_reading_goes_on() -> None:
    prompt, output = answer("x", b"x\r\n" + "é".encode() * 60 + b"\r\nmore\r\ndb=> ", limit=101)
    assert prompt == PROMPT
    assert output == Output("é" * 50, True)
    assert answer("x", b"x\r\n" + b"a" * 101 + b"\r\ndb=> ", limit=101)[1] == Output(
        "a" * 101, False
    )
    assert answer("x", b"x\r\n" + b"\r\n" * 500 + b"db=> ", limit=101)[1] == Output(
        "\n" * 101, True
    )
    assert answer("x", b"x\r\n" + b"a" * 500, limit=101)[1] == Output("a" * 101, True)


def test_an_endless_line_takes_no_endless_memory() -> None:
    frame = framing(limit=100)
    frame.begin("x", PROMPT)
    frame.feed(b"x\r\n")
    for _ in range(100):
        frame.feed(b"a" * 10_000)
    assert frame._screen.length < 20_000
    assert frame.output() == Output("a" * 100, True)
    frame.feed(b"\r\ndb=> ")
    assert frame.prompt == PROMPT


PIECES = st.sampled_from(
    [
        b"db=> ",
        b"x",
        b"\r\n",
        b"\r",
        b"\n",
        b"\b",
        b"a b",
        b"\x1b[K",
        b"\x1b[1m",
        b"\xc3\xa9",
        b"\xff",
        b"<",
    ]
)


@given(
    st.lists(PIECES).map(b"".join),
    st.lists(st.integers(1, 9)),
    st.sampled_from(["x", "a bx", PROMPT]),
)
def test_pieces_make_no_difference(data: bytes, sizes: list[int], sent: str) -> None:
    whole = answer(sent, data, limit=20)
    frame = framing(limit=20)
    frame.begin(sent, PROMPT)
    rest = data
    for size in sizes:
        frame.feed(rest[:size])
        rest = rest[size:]
    frame.feed(rest)
    assert (frame.prompt, frame.output()) == whole


@given(st.lists(st.text(st.characters(exclude_categories=["C"]), max_size=30), max_size=5))
def test_lines_come_out_as_they_went_in(lines: list[str]) -> None:
    said = "".join(f"{line}\r\n" for line in lines)
    prompt, output = answer("select", f"select\r\n{said}{PROMPT}".encode(), limit=10_000)
    assert prompt == PROMPT
    assert output == Output("\n".join(lines), False)

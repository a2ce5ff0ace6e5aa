"""Escape sequences are removed from a terminal's bytes, however the bytes are split."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.work.terminals.screen import ERASE_LINE, ERASE_TO_END, Cleaner


def clean(*pieces: bytes) -> str:
    cleaner = Cleaner()
    return "".join(cleaner.feed(piece) for piece in pieces)


LEFT = [
    (b"plain\ttext\r\n", "plain\ttext\r\n"),
    (b"\x1b[1;31mred\x1b[0m", "red"),
    (b"\x1b[?2004hdb=> ", "db=> "),
    (b"\x1b[>c\x1b[!p\x1b[1 qx", "x"),
    (b"\x1b]0;a title\x07x", "x"),
    (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
    (b"\x1bPq\x1b\\x\x1b_app\x1b\\y\x1b^pm\x1b\\z\x1bXsos\x1b\\", "xyz"),
    (b"\x1b(Bx\x1b)0y\x1b=z\x1b>\x1b7\x1b8\x1bM", "xyz"),
    # 8-bit controls count when encoded as characters; stray bytes are only broken characters.
    (b"\xc2\x9b31mred", "red"),
    (b"\xc2\x9d0;title\xc2\x9cx", "x"),
    (b"\x9b31mred\x9b0m", "\ufffd31mred\ufffd0m"),
    (b"\x9d0;title\x9cx", "\ufffd0;title\ufffdx"),
    (b"\x98\xf0\x9f\x90\x98';\r\nout", "\ufffd🐘';\r\nout"),
    # The same byte inside a character is not a control: U+069B, U+26DB.
    (b"\xda\x9b31m", "\u069b31m"),
    ("⛛".encode(), "⛛"),
    # A broken character is replaced once, and its bytes are not controls.
    (b"a\xffb\xc3(c", "a\ufffdb\ufffd(c"),
    (b"\xe2\x9bx", "\ufffdx"),
    (b"\xf0\x9f\x98", ""),
    (b"\xc0\x80x", "\ufffd\ufffdx"),
    # An unterminated string ends with its line.
    (b"a\x1b]0;title\nb", "a\nb"),
    (b"a\xc2\x90b\r\nc", "a\nc"),
    # Controls within a sequence take effect, and can cancel it.
    (b"\x1b[3\n1mx", "\nx"),
    (b"\x1b[31\x18x\x1b\x1ay", "xy"),
    (b"\x1b[31\x1b[0mx", "x"),
    (b"\x1b[1\xc3\xa9x", "éx"),
    (b"\x07\x00\x0b\x0c\x0e\x0f\x7fx", "x"),
    (b"\b\x1b[K\x1b[0K\x1b[2K\x1b[1K", f"\b{ERASE_TO_END}{ERASE_TO_END}{ERASE_LINE}"),
]


def test_what_is_left() -> None:
    for data, text in LEFT:
        assert clean(data) == text, (data, text)
        assert clean(*(bytes([byte]) for byte in data)) == text, (data, text)


HOSTILE = st.lists(
    st.one_of(
        st.binary(max_size=4),
        st.sampled_from(
            [
                b"\x1b",
                b"\x1b[",
                b"\x1b]0;",
                b"\x9b",
                b"\x07",
                b"\x1b\\",
                b"\x9c",
                b"31m",
                b"K",
                b"\n",
            ]
        ),
        st.text(max_size=4).map(lambda text: text.encode("utf-8", "ignore")),
    )
).map(b"".join)


@given(HOSTILE, st.lists(st.integers(min_value=1, max_value=7)))
def test_pieces_make_no_difference(data: bytes, sizes: list[int]) -> None:
    pieces, rest = [], data
    for size in sizes:
        pieces.append(rest[:size])
        rest = rest[size:]
    assert clean(*pieces, rest) == clean(data)


@given(HOSTILE)
def test_nothing_that_a_terminal_obeys_is_left(data: bytes) -> None:
    allowed = "\t\n\r\b" + ERASE_TO_END + ERASE_LINE
    for character in clean(data):
        assert character in allowed or character.isprintable() or ord(character) >= 0xA0


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"])))
def test_text_stays_as_it_is(text: str) -> None:
    assert clean(text.encode()) == text

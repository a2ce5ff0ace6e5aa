"""What models read of long output: both ends of it, and any part by its offset."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.programs.turns.runs.run_tool import shortened
from orchestrator.work.commands.head_and_tail import HeadAndTail
from orchestrator.work.commands.output_pages import MOST_PAGE, page_text

_PIECES = st.lists(st.binary(max_size=40))


@given(_PIECES, st.integers(2, 60))
def test_both_ends_are_kept(pieces: list[bytes], most: int) -> None:
    whole, kept = b"".join(pieces), HeadAndTail(most)
    for piece in pieces:
        kept.add(piece.hex().encode())
    printed = whole.hex()
    half = most // 2
    assert kept.text.startswith(printed[:half])
    assert kept.text.endswith(printed[-half:] if printed else "")
    assert kept.cut == max(0, len(printed) - 2 * half)
    if kept.cut:
        assert f"\n[{kept.cut} bytes are left out here]\n" in kept.text
    else:
        assert kept.text == printed


def test_what_the_agent_has_not_kept_is_told() -> None:
    kept = HeadAndTail(100)
    kept.add(b"begin")
    kept.skip(7)
    kept.add(b"end")
    assert (kept.cut, kept.text) == (7, "begin\n[7 bytes are left out here]\nend")


@given(st.text(min_size=1, max_size=50), st.lists(st.integers(1, 9)))
def test_pages_make_the_whole_text(text: str, sizes: list[int]) -> None:
    data = (text * (2 * MOST_PAGE // len(text.encode()) + 1)).encode(errors="replace")
    chunks, place = [], 0
    for size in [*(size * 1000 for size in sizes), len(data)]:
        if place < len(data):
            chunks.append(("stdout", place, data[place : place + size]))
            place += size
    position, pages = 0, list[str]()
    while position < len(data):
        rest = [(s, max(o, position), d[max(0, position - o) :]) for s, o, d in chunks]
        page, following = page_text([each for each in rest if each[2]], position, len(data))
        assert position < following <= position + MOST_PAGE
        position = following
        pages.append(page)
    assert "".join(pages) == data.decode()


def test_half_a_character_at_the_end_is_told() -> None:
    assert page_text([("stdout", 0, b"a\xc3")], 0, 2) == ("a�", 2)
    assert page_text([("stdout", 9, b"b")], 5, 10) == ("\n[4 bytes were not kept]\nb", 10)


@given(st.text(max_size=60), st.integers(2, 40))
def test_a_shortened_text_has_both_ends(text: str, most: int) -> None:
    found = shortened(text, most, ": look")
    if len(text) <= most:
        assert found == text
    else:
        half = most // 2
        middle = f"\n[{len(text) - 2 * half} characters are left out here: look]\n"
        assert found == f"{text[:half]}{middle}{text[-half:]}"

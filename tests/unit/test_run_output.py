"""What an answer of a kept shell has of its output: bounded, in order, and searched."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.work.shells.run_output import HEAD_BYTES, TAIL_BYTES, RunOutput

PIECES = st.lists(st.binary(max_size=40), max_size=12)


def filled(pieces: list[bytes], *texts: str) -> RunOutput:
    output = RunOutput()
    output.look_for(texts)
    for piece in pieces:
        output.add(piece)
    return output


@given(PIECES)
def test_short_output_is_whole(pieces: list[bytes]) -> None:
    output = filled(pieces)
    whole = b"".join(pieces)
    assert output.take() == (whole.decode("utf-8", "replace"), len(whole), 0)
    assert output.take() == ("", 0, 0)


@given(st.lists(st.integers(0, 300_000), max_size=6), st.integers(1, 255))
def test_long_output_has_its_beginning_and_its_end(sizes: list[int], first: int) -> None:
    pieces = [bytes([(first + number) % 94 + 33]) * size for number, size in enumerate(sizes)]
    whole = b"".join(pieces)
    printed = filled(pieces).take()
    assert printed.bytes == len(whole)
    if len(whole) <= HEAD_BYTES + TAIL_BYTES:
        assert (printed.text, printed.cut) == (whole.decode(), 0)
        return
    assert printed.cut == len(whole) - HEAD_BYTES - TAIL_BYTES
    gap = f"\n[{printed.cut} bytes are cut]\n"
    assert printed.text == whole[:HEAD_BYTES].decode() + gap + whole[-TAIL_BYTES:].decode()


@given(PIECES, st.text(min_size=1, max_size=4), PIECES)
def test_a_text_is_found_however_it_is_split(
    before: list[bytes], text: str, after: list[bytes]
) -> None:
    pieces = [*before, *(bytes([byte]) for byte in text.encode()), *after]
    assert filled(pieces, text).found == text
    late = filled(pieces)
    assert late.found is None
    late.look_for((text,))
    assert late.found == text


@given(PIECES, st.text(min_size=1, max_size=4))
def test_only_what_was_printed_is_found(pieces: list[bytes], text: str) -> None:
    assert filled(pieces, text).found == (text if text.encode() in b"".join(pieces) else None)


def test_what_an_answer_has_had_is_not_found_again() -> None:
    output = filled([b"name? "], "? ")
    assert output.found == "? "
    output.take()
    output.look_for(("? ",))
    assert output.found is None


def test_of_several_texts_the_first_that_is_printed_is_found() -> None:
    output = filled([b"pass", b"word:"], "later", "word", "pass")
    assert output.found == "pass"
    assert filled([b"a longer t", b"ext"], "x", "longer text").found == "longer text"

"""Forms of several parts, however they arrive, and whatever they are."""

from collections.abc import AsyncGenerator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.compat.multipart import Multipart, boundary_of
from orchestrator.ground.errors import TooLargeError, ValidationError

BOUNDARY = b"XX"
NAMES = st.text("abcdefgh-_", min_size=1, max_size=9)
# Data that looks like delimiters, whole and in part.
DATA = st.lists(
    st.sampled_from([b"\r\n", b"--", b"X", b"\r\n--X", b"--XX", b"\r\n--", b"a", b"\0", b"\r"])
).map(b"".join)
PARTS = st.lists(st.tuples(NAMES, DATA), max_size=5)


async def arriving(data: bytes, sizes: list[int]) -> AsyncGenerator[bytes]:
    while data:
        size = sizes.pop() if sizes else 7
        yield data[:size]
        data = data[size:]


def body_of(parts: list[tuple[str, bytes]]) -> bytes:
    head = b'--XX\r\nContent-Disposition: form-data; name="%s"; filename="a; name=b"\r\n\r\n'
    return b"".join(head % name.encode() + data + b"\r\n" for name, data in parts) + b"--XX--\r\n"


async def read(body: bytes, sizes: list[int]) -> list[tuple[str, bytes]]:
    found = []
    async for part in Multipart(arriving(body, sizes), BOUNDARY).parts():
        found.append((part.name, b"".join([piece async for piece in part.data])))
    return found


@given(PARTS, st.lists(st.integers(1, 40)))
async def test_parts_are_read_however_they_are_split(
    parts: list[tuple[str, bytes]], sizes: list[int]
) -> None:
    if any(b"\r\n--XX" in b"\r\n" + data for _, data in parts):
        return  # no client chooses a boundary that is in its data
    assert await read(body_of(parts), sizes) == parts


@given(st.binary(max_size=60) | DATA, st.lists(st.integers(1, 40)))
async def test_anything_else_is_refused(body: bytes, sizes: list[int]) -> None:
    with suppress(ValidationError):  # any other error fails, and so does waiting
        await read(body, sizes)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "ends within"),
        (b"--XX\r\nContent-Disposition: form-data; name=a\r\n\r\nx", "ends within"),
        (b"--XX\r\nContent-Type: text/plain\r\n\r\nx\r\n--XX--", "has no name"),
        (b"--XX\r\n" + b"x" * 10_000 + b"\r\n\r\n", "headers"),
        (b"--XXx\r\n\r\n", "line end"),
        (body_of([("a", b"")] * 17), "more than 16"),
    ],
)
async def test_what_is_malformed_is_told(body: bytes, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        await read(body, [])


async def test_a_value_is_short_and_text() -> None:
    for data, error in ((b"x" * 20_000, TooLargeError), (b"\xff", ValidationError)):
        part = await anext(Multipart(arriving(body_of([("a", data)]), []), BOUNDARY).parts())
        with pytest.raises(error, match="a "):
            await part.text()


def test_boundaries() -> None:
    assert boundary_of("multipart/form-data; boundary=abc") == b"abc"
    assert boundary_of('Multipart/Form-Data; boundary="a b"') == b"a b"
    for wrong in (
        "",
        "text/plain",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "x" * 99,
    ):
        with pytest.raises(ValidationError, match="multipart"):
            boundary_of(wrong)


async def test_the_name_of_a_file_may_be_a_path() -> None:
    table = {
        b'; filename="/home/user/a.txt"': "/home/user/a.txt",
        b'; filename="a%22b\\\\c"': 'a"b\\c',
        b'; filename="a\\"b"; x="y"': 'a"b',
        '; filename="\u00e4"'.encode(): "\u00e4",
        b"": "",
        b'; filename="cut': "",
    }
    for given_name, expected in table.items():
        body = b'--XX\r\nContent-Disposition: form-data; name="file"' + given_name
        body += b"\r\n\r\nx\r\n--XX--\r\n"
        async for part in Multipart(arriving(body, []), BOUNDARY).parts():
            assert (part.name, part.file_name) == ("file", expected)
            assert [piece async for piece in part.data]


async def test_as_many_parts_as_are_permitted() -> None:
    body = body_of([("a", b"1"), ("b", b"2"), ("c", b"3")])

    async def names(most: int) -> list[str]:
        found = []
        async for part in Multipart(arriving(body, []), BOUNDARY, most).parts():
            found.append(part.name)
            assert [piece async for piece in part.data]
        return found

    assert await names(3) == ["a", "b", "c"]
    with pytest.raises(ValidationError, match="more than 2 parts"):
        await names(2)

"""What a node sends for a session that moves: read in any pieces, and nothing else is taken."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.errors import ValidationError
from orchestrator.operate.moves.envelope import MOST_BYTES, Envelope, opened
from orchestrator.state.moving.continued import Continued, EarlierLife

_ENVELOPE = Envelope(
    3,
    Continued(
        EarlierLife("node-1", "0" * 16, 1, 7, "f" * 64),
        owner="team",
        handle_sha256="a" * 64,
        level_sha256="b" * 64,
        own_rules={},
        egress_usage={},
        reissues=0,
        secret_names=("TOKEN",),
        seal_key="00" * 32,
    ),
)
_ARCHIVE = b"an archive"


async def _pieces(data: bytes, cuts: list[int]) -> AsyncIterator[bytes]:
    at = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for begin, end in pairwise(at):
        yield data[begin:end]


async def _read(data: bytes, cuts: list[int]) -> tuple[Envelope, bytes]:
    envelope, rest = await opened(_pieces(data, cuts))
    return envelope, b"".join([piece async for piece in rest])


@given(st.lists(st.integers(0, 5_000), max_size=20))
def test_pieces_of_any_size(cuts: list[int]) -> None:
    assert asyncio.run(_read(_ENVELOPE.encoded() + _ARCHIVE, cuts)) == (_ENVELOPE, _ARCHIVE)


@given(st.integers(0, 5_000), st.lists(st.integers(0, 5_000), max_size=3))
def test_one_that_is_cut_is_refused(end: int, cuts: list[int]) -> None:
    data = _ENVELOPE.encoded()
    with pytest.raises(ValidationError) as refused:
        asyncio.run(_read(data[: end % len(data)], cuts))
    assert refused.value.fields["field"] == "envelope"


@given(st.binary(max_size=200), st.booleans())
def test_anything_else_is_refused(data: bytes, sized: bool) -> None:
    with pytest.raises(ValidationError) as refused:
        asyncio.run(_read(len(data).to_bytes(4) + data if sized else data, []))
    assert refused.value.fields["field"] == "envelope"


async def test_one_that_is_too_long_is_refused_at_its_first_bytes() -> None:
    asked = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal asked
        while True:
            asked += 1
            yield (MOST_BYTES + 1).to_bytes(4)

    with pytest.raises(ValidationError, match="too long"):
        await opened(endless())
    assert asked == 1

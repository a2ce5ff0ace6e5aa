"""Who is lost, and who only does not speak: a machine that answers keeps its sessions."""

import socket
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from orchestrator.cluster.copies import LostSession, WorkspaceCopy
from orchestrator.ground.errors import CapacityExhaustedError, ValidationError
from orchestrator.operate.snapshots.copied_session import continued_of, pieces, request_of
from orchestrator.operate.snapshots.taking_over import TakingOver, answers


def lost(name: str, node: str = "one", continued: str = "{}") -> LostSession:
    copy = WorkspaceCopy(name, f"key-{name}", "ann", 1, "a", "handle", continued)
    return LostSession(copy, 1, node, f"https://{node}.test:8790", 1, 0, "0" * 64)


class Lost:
    """Sessions that are reserved one after the other."""

    def __init__(self, *sessions: LostSession) -> None:
        self.left = list(sessions)

    async def reserve(self) -> LostSession | None:
        return self.left.pop(0) if self.left else None

    async def pieces(self, lost: LostSession) -> AsyncIterator[bytes]:
        yield b""

    async def take(self, lost: LostSession, session_key: str) -> None:
        raise AssertionError("nothing was received")


class Refusing:
    """Whoever tries to take a session over gets as far as here."""

    def __init__(self) -> None:
        self.tried = 0

    async def receive(self, *_: object) -> None:
        self.tried += 1
        raise CapacityExhaustedError("no")


class Member:
    state = "ready"


def taking(refusing: Refusing, waiting: Lost, **machines: bool) -> TakingOver:
    asked: list[str] = []

    async def answering(url: str) -> bool:
        assert url not in asked, "each machine is asked once"
        asked.append(url)
        return machines[url.removeprefix("https://").removesuffix(".test:8790")]

    none: Any = object()
    snapshots, member = cast(Any, refusing), cast(Any, Member())
    return TakingOver(snapshots, none, none, waiting, member, lambda: True, answering)


COMPLETE = """{"place": 1, "continued": {"earlier": {"node": "", "session_key": "k",
"incarnation": 3, "event": 0, "hash": ""}, "owner": "ann", "handle_sha256": "old",
"level_sha256": "l", "own_rules": {}, "egress_usage": {}, "reissues": 0, "secret_names": [],
"seal_key": ""}}"""


async def test_a_machine_that_answers_keeps_its_sessions() -> None:
    refusing = Refusing()
    sessions = [lost(f"a{n}", "one", COMPLETE) for n in range(3)]
    sessions += [lost(f"b{n}", "two", COMPLETE) for n in range(2)]
    waiting = Lost(*sessions)
    await taking(refusing, waiting, one=True, two=False).take_all()
    assert refusing.tried == 2
    assert waiting.left == []


async def test_what_can_not_be_taken_keeps_nobody_from_the_next() -> None:
    refusing = Refusing()
    broken = [lost("a"), lost("b", continued="nothing"), lost("c", continued=COMPLETE)]
    await taking(refusing, Lost(*broken), one=False).take_all()
    assert refusing.tried == 1


async def test_whatever_listens_or_not_a_machine_that_is_there_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert await answers(f"https://127.0.0.1:{port}")
    assert await answers(f"https://127.0.0.1:{port}")  # it refuses
    assert not await answers("https://nobody.invalid:8790")
    assert not await answers("")


def test_the_next_life_counts_on_from_the_place() -> None:
    found = continued_of(lost("a", continued=COMPLETE))
    assert (found.earlier.incarnation, found.earlier.node) == (3, "one")
    assert found.handle_sha256 == "handle"


@pytest.mark.parametrize("session", [{}, {"id": "a"}, {"id": "a", "permission_level": "low"}])
def test_a_request_that_is_none_is_refused(session: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        request_of(session)


@pytest.mark.parametrize("sizes", [(), (0,), (1, 1 << 20, 5), (3 << 20,), ((1 << 20) - 1, 1)])
async def test_pieces_have_the_bytes_in_their_order(sizes: tuple[int, ...]) -> None:
    data = [bytes([n]) * size for n, size in enumerate(sizes)]

    async def chunks() -> AsyncIterator[bytes]:
        for each in data:
            yield each

    found = [piece async for piece in pieces(chunks())]
    assert b"".join(found) == b"".join(data)
    assert all(len(piece) == 1 << 20 for piece in found[:-1])

"""Hooks of a control plane that is killed while it delivers."""

import json
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.receiver import HANGS, OK, Received, Receiver, Reply, receiving
from tests.support.server import serving
from tests.support.until import until

KILLS = 3
EACH = 4


def told(receiver: Receiver) -> dict[str, list[str]]:
    """What the receiver got of each session, without repetitions of the latest message."""
    found: dict[str, list[str]] = defaultdict(list)
    for request in receiver.requests:
        types = found[request.json["session"]["id"]]
        if types[-1:] != [request.json["type"]]:
            types.append(request.json["type"])
    return found


@pytest.mark.parametrize("answers_first", [True, False])
async def test_killed_while_it_delivers(
    tmp_path: Path, sandbox_image: str, answers_first: bool
) -> None:
    """Every message arrives at least once, and those of a session in order."""

    def answer(got: Received) -> Reply:
        is_first = got.json["type"] == "session.created"
        return OK if finally_ or is_first == answers_first else HANGS

    finally_ = False
    async with receiving() as receiver:
        receiver.answer = answer
        hook = {
            "url": receiver.url,
            "secret": "the-secret-of-the-tests",
            "events": ["session.created", "session.closed"],
        }
        settings = {"PADDOCK_IMAGE": sandbox_image, "PADDOCK_HOOKS": json.dumps({"ci": hook})}
        async with serving(tmp_path / "state", **settings) as server:
            for cycle in range(KILLS):
                seen = len(receiver.requests)
                for number in range(EACH):
                    name = f"box-{cycle}-{number}"
                    await server.ok("POST", "/api/sessions", {"id": name})
                    await server.ok("DELETE", f"/api/sessions/{name}?purge=true")
                await until(lambda seen=seen: len(receiver.requests) > seen)  # type: ignore[misc]
                await server.kill()
                await server.start()
            finally_ = True
            expected = {
                f"box-{cycle}-{number}": ["session.created", "session.closed"]
                for cycle in range(KILLS)
                for number in range(EACH)
            }
            await until(lambda: told(receiver) == expected)
    assert len({request.json["id"] for request in receiver.requests}) == 2 * KILLS * EACH

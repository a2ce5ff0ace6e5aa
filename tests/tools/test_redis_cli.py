"""The manifest of redis-cli with a Redis server, at medium."""

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from tests.support.box import Box
from tests.support.real_tool import RealTool
from tests.support.tool import results

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Each with its rule: scripts, the server's settings, other servers, deletion of everything.
ESCAPES = {
    "EVAL 'return 1' 0": "pattern",
    "EVALSHA x 0": "pattern",
    "SCRIPT LOAD x": "pattern",
    "FUNCTION LOAD x": "pattern",
    "MODULE LOAD /workspace/x.so": "pattern",
    "CONFIG SET dir /workspace": "pattern",
    "CONFIG GET requirepass": "pattern",
    "SLAVEOF example.org 6379": "pattern",
    "REPLICAOF example.org 6379": "pattern",
    "MIGRATE example.org 6379 a 0 100": "pattern",
    "ACL SETUSER x": "pattern",
    "DEBUG SEGFAULT": "pattern",
    "SHUTDOWN": "pattern",
    "FLUSHALL": "pattern",
    "MONITOR": "pattern",
    "SUBSCRIBE a": "pattern",
    "AUTH x": "pattern",
    "SELECT 1": "pattern",
    "MULTI": "pattern",
    "connect example.org 6379": "pattern",
    ":set hints": "pattern",
    "3 GET a": "pattern",
    "GET a b": "pattern",
    "get a": "pattern",
    'SET a "x" XX GET': "pattern",
    "SET a $(id)": "input-sanitize",
    "SET a b; GET a": "input-sanitize",
    "SET a b > x": "input-sanitize",
    "!id": "input-sanitize",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def redis_cli(plane: ControlPlane) -> RealTool:
    return await RealTool.open(await Box.create(plane, "medium", mounts=("redis",)), "redis-cli")


async def test_keys(redis_cli: RealTool) -> None:
    assert await redis_cli.said("set", 'SET greeting "hello world" EX 60') == "OK"
    assert await redis_cli.said("get", "GET greeting") == '"hello world"'
    assert await redis_cli.said("get", "TTL greeting") in ("(integer) 60", "(integer) 59")
    assert await redis_cli.said("get", "GET missing") == "(nil)"
    assert "WRONGTYPE" in await redis_cli.said("get", "LLEN greeting")
    assert await redis_cli.said("keys", "KEYS gree*") == '1) "greeting"'
    assert '"greeting"' in await redis_cli.said("scan", "SCAN 0 MATCH gree* COUNT 10")
    assert await redis_cli.said("del", "DEL greeting missing") == "(integer) 1"
    assert await redis_cli.state() == "ready"


@pytest.mark.parametrize(("text", "rule"), ESCAPES.items())
async def test_no_way_out_reaches_redis(redis_cli: RealTool, text: str, rule: str) -> None:
    for command in ("get", "set", "del"):
        await redis_cli.refuses(command, text, rule)


async def test_flushing_needs_the_highest_level_and_a_person(
    redis_cli: RealTool, plane: ControlPlane
) -> None:
    await redis_cli.said("set", "SET kept yes")
    await redis_cli.refuses("flushdb", "FLUSHDB", "risk-tier")
    box = await Box.create(plane, "high", mounts=("redis",))
    tool = await RealTool.open(box, "redis-cli")
    assert (await tool.do("flushdb", "FLUSHDB")).status == "pending"
    assert await tool.said("get", "GET kept") == '"yes"'
    await tool.decide("approve")
    assert results(await tool.do("flushdb", "FLUSHDB")).output == "OK"
    assert await tool.said("get", "GET kept") == "(nil)"
    await box.close()

"""What commands print: read from any offset, capped, counted, and never in anybody's way."""

import asyncio

import pytest

from orchestrator.errors import SandboxUnavailableError
from tests.support.box import Box

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 2**20
# Numbered lines of eight bytes, so that every offset tells its line.
LINES = "seq -f %07.0f"


async def page(box: Box, command: object, after: int, wait: float = 0.0) -> tuple[bytes, int, bool]:
    """Output from an offset on, the next offset, and whether the command has ended."""
    found = await box.plane.executions.output(box.session, command, after, wait)  # type: ignore[arg-type]
    return b"".join(data for _, _, data in found.chunks), found.next, found.ended


async def test_output_is_read_from_any_offset(low: Box) -> None:
    command = (await low.run("cat", stdin="0123456789")).command
    assert await page(low, command, 0) == (b"0123456789", 10, True)
    assert await page(low, command, 7) == (b"789", 10, True)
    assert await page(low, command, 10) == (b"", 10, True)
    assert await page(low, command, 1000) == (b"", 1000, True)


async def test_reading_waits_for_output(high: Box) -> None:
    command = await high.start(argv=["cat"], background=True, stdin_open=True)
    assert await page(high, command, 0) == (b"", 0, False)
    waiting = [asyncio.create_task(page(high, command, 0, 30.0)) for _ in range(3)]
    await high.ask("stats")  # their requests have arrived by now
    assert not any(task.done() for task in waiting)
    await high.feed(command, b"here")
    assert await asyncio.gather(*waiting) == [(b"here", 4, False)] * 3
    waiting = [asyncio.create_task(page(high, command, 4, 30.0))]
    await high.feed(command, b"", close=True)
    assert await asyncio.gather(*waiting) == [(b"", 4, True)]


async def test_reading_waits_no_longer_than_asked(high: Box) -> None:
    command = await high.start(argv=["cat"], background=True, stdin_open=True)
    assert await page(high, command, 0, 0.05) == (b"", 0, False)
    await high.feed(command, b"", close=True)
    await high.finish(command)


async def test_a_foreground_command_keeps_its_first_and_its_last_bytes(medium: Box) -> None:
    limit = medium.session.level.output_bytes
    text = "".join(f"{number:07d}\n" for number in range(300_000))
    await medium.write("lines", text.encode())
    done = await medium.run("cat lines")
    assert done.exit["truncated"]
    assert done.exit["output_bytes"] == len(text)
    # Each chunk is charged a little on top of its bytes.
    assert limit * 0.9 < len(done.stdout) <= limit
    assert done.exit["cut_bytes"] == len(text) - len(done.stdout)
    half = limit * 9 // 20
    assert text.startswith(done.stdout[:half])
    assert text.endswith(done.stdout[-half:])
    assert done.exit_code == 0


async def test_a_background_command_keeps_its_last_bytes(high: Box) -> None:
    limit = high.session.level.output_bytes
    count = 2_000_000
    command = await high.start(argv=["seq", "-f", "%07.0f", str(count)], background=True)
    done = await high.finish(command)
    assert (done.exit["output_bytes"], done.exit["truncated"]) == (count * 8, True)
    assert limit * 0.9 < len(done.stdout) <= limit
    assert done.stdout.endswith(f"{count - 1:07d}\n{count:07d}\n")
    offsets = [offset async for _, offset, _ in high.output(command)]
    assert offsets[0] == count * 8 - len(done.stdout)


async def test_output_just_under_the_cap_is_whole(high: Box) -> None:
    done = await high.run(argv=["head", "-c", str(4 * MIB - 64 * 1024), "/dev/zero"])
    assert not done.exit["truncated"]
    assert len(done.stdout) == done.exit["output_bytes"] == 4 * MIB - 64 * 1024


async def test_alternating_streams_cannot_make_the_agent_hold_more(high: Box) -> None:
    before = high.agent().memory_info().rss
    script = """
import os
for _ in range(200_000):
    os.write(1, b"o")
    os.write(2, b"e")
"""
    done = await high.python(script, timeout=60)
    assert done.exit["output_bytes"] == 400_000
    assert high.agent().memory_info().rss - before < 16 * MIB


async def test_a_flood_stalls_nobody(high: Box) -> None:
    floods = [await high.start(argv=["yes"], background=True) for _ in range(3)]
    for flood in floods:
        await high.printed(flood, "y\n")
    for number in range(5):
        done = await high.run(argv=["echo", str(number)])
        assert done.stdout == f"{number}\n"
    await high.write("during", b"the flood")
    assert await high.read("during") == b"the flood"
    for flood in floods:
        done = await high.cancel(flood)
        assert done.exit["truncated"]
        assert len(done.stdout) <= high.session.level.output_bytes


async def test_a_foreground_flood_ends_at_its_timeout(low: Box) -> None:
    await low.write("zeros", bytes(8 * MIB))
    done = await low.run(argv=["tail", "-f", "-c", "+0", "zeros"], timeout=1)
    assert (done.exit["timed_out"], done.exit["output_bytes"]) == (True, 8 * MIB)


async def test_invalid_utf8_is_bytes_as_they_are(high: Box) -> None:
    command = (await high.run(argv=["printf", r"\377\000\303"])).command
    assert await page(high, command, 0) == (b"\xff\x00\xc3", 3, True)


async def test_only_the_latest_outputs_are_kept(high: Box) -> None:
    first = (await high.run(argv=["echo", "first"])).command
    for _ in range(9):
        await high.run(argv=["echo", "another"])
    found = await high.plane.executions.output(high.session, first, 0, 0.0)
    assert found.lost
    assert found.ended


async def test_output_that_is_being_read_is_not_evicted(high: Box) -> None:
    """Many foreground commands at once: each caller gets all of its output."""
    done = await asyncio.gather(
        *(high.bash(f"echo {n}; head -c 1000000 /dev/zero | tr '\\0' x") for n in range(16))
    )
    for number, outcome in enumerate(done):
        assert outcome.stdout == f"{number}\n" + "x" * 1_000_000


async def test_an_answer_never_exceeds_a_frame(high: Box) -> None:
    done = await high.python("import os; os.write(1, b'x' * 300); os.write(2, b'y' * (1 << 20))")
    assert done.exit["output_bytes"] == 300 + MIB
    answer = await high.ask(
        "output", command_id=done.command.id, after=0, limit=100 * MIB, wait_ms=0
    )
    assert answer["next"] <= 256 * 1024


async def test_nonsense_offsets_are_refused(high: Box) -> None:
    done = await high.run(argv=["echo", "x"])
    for after in ("x", None, [1]):
        with pytest.raises(Exception, match="after must be an integer") as refused:
            await high.ask("output", command_id=done.command.id, after=after, limit=1, wait_ms=0)
        assert not isinstance(refused.value, SandboxUnavailableError)
    assert (await high.run(argv=["true"])).exit_code == 0

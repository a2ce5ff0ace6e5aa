"""Output of commands: read from any offset, capped, counted, and never blocking."""

import asyncio

import pytest

from orchestrator.ground.errors import SandboxUnavailableError
from orchestrator.state.command import Command
from orchestrator.work.commands import running_command
from tests.conftest import BoxFactory
from tests.support.box import TESTER, Box

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 2**20
# Numbered lines of eight bytes, so that an offset determines its line.
LINES = "seq -f %07.0f"


async def page(box: Box, command: object, after: int, wait: float = 0.0) -> tuple[bytes, int, bool]:
    """Output from an offset, the next offset, and whether the command has ended."""
    found = await running_command.read_output(box.session, command, after, wait)  # type: ignore[arg-type]
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
    await high.ask("stats")  # by now the requests have arrived
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
    # Each chunk is charged a little more than its bytes.
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
    found = await running_command.read_output(high.session, first, 0, 0.0)
    assert found.lost
    assert found.ended


async def test_output_that_is_being_read_is_not_evicted(high: Box) -> None:
    """Many foreground commands at once: each caller gets all of its output."""
    done = await asyncio.gather(
        *(high.bash(f"echo {n}; head -c 1000000 /dev/zero | tr '\\0' x") for n in range(16))
    )
    for number, outcome in enumerate(done):
        assert outcome.stdout == f"{number}\n" + "x" * 1_000_000


async def whole(box: Box, command: Command, after: int = 0) -> dict[str, bytes]:
    """All readable output of each stream, read in pages without gaps."""
    found = {"stdout": b"", "stderr": b""}
    while True:
        page = await running_command.read_output(box.session, command, after, 0.0, whole=True)
        for stream, offset, data in page.chunks:
            assert offset == after
            found[stream] += data
            after += len(data)
        assert page.next == after
        assert page.ended
        if not page.chunks:
            return found


def lines(first: int, last: int) -> bytes:
    return b"".join(b"%07d\n" % number for number in range(first, last))


async def test_long_output_stays_readable_whole(high: Box) -> None:
    script = f"{LINES} 1 999999; {LINES} 1000000 1499999 >&2; {LINES} 1500000 1999999"
    done = await high.bash(script)
    printed = lines(1, 1_000_000) + lines(1_500_000, 2_000_000)
    expected = {"stdout": printed, "stderr": lines(1_000_000, 1_500_000)}
    assert done.exit["truncated"]
    size = sum(len(data) for data in expected.values())
    assert done.exit["stored_bytes"] == done.exit["output_bytes"] == size
    assert await whole(high, done.command) == expected
    # More commands than the limits on remembered commands and on kept output.
    for _ in range(70):
        await high.run(argv=["true"])
    command = running_command.find(high.session, done.command.id)
    assert await whole(high, command) == expected
    rest = {"stdout": lines(1_500_000, 2_000_000), "stderr": lines(1_250_000, 1_500_000)}
    assert await whole(high, command, 1_249_999 * 8) == rest


async def test_the_beginning_is_stored_up_to_a_limit_that_is_told(new_box: BoxFactory) -> None:
    box = await new_box("low")
    limit = box.session.limits.memory_bytes // 64
    text = lines(0, limit // 4)
    await box.write("lines", text)
    stored = []
    for _ in range(5):
        done = await box.run("cat lines")
        assert (done.exit_code, done.exit["output_bytes"]) == (0, len(text))
        assert text.endswith(done.stdout[-1000:].encode())
        stored.append(done.exit["stored_bytes"])
        page = await running_command.read_output(box.session, done.command, 0, 0.0, whole=True)
        assert text.startswith(b"".join(data for _, _, data in page.chunks))
    # All commands of a session share four times this limit.
    assert all(limit - 100 < size <= limit for size in stored[:4])
    assert stored[4] == 0
    assert (await box.run("ls")).exit["stored_bytes"] == 0
    await box.close()


async def test_no_other_command_reaches_what_is_stored(new_box: BoxFactory) -> None:
    box = await new_box("high")
    done = await box.run(argv=["seq", "-f", "%07.0f", "0", "999999"])
    script = """
import ctypes, os
libc = ctypes.CDLL(None)
opened, processes = [], [name for name in os.listdir("/proc") if name.isdigit()]
for process in processes:
    if process == str(os.getpid()):
        continue
    pidfd = libc.syscall(434, int(process), 0)
    for number in range(256):
        for flags in (os.O_RDONLY, os.O_WRONLY | os.O_TRUNC):
            try:
                os.close(os.open(f"/proc/{process}/fd/{number}", flags))
                opened.append((process, number))
            except OSError:
                pass
        if libc.syscall(438, pidfd, number, 0) >= 0:
            opened.append((process, number))
print("1" in processes, opened)
"""
    assert (await box.python(script)).stdout == "True []\n"
    assert (await whole(box, done.command))["stdout"] == lines(0, 1_000_000)
    await box.close()


async def test_what_is_stored_goes_along_with_its_session(new_box: BoxFactory) -> None:
    box = await new_box("high")
    script = f"{LINES} 0 399999; {LINES} 400000 999999 >&2"
    done = await box.bash(script)
    expected = {"stdout": lines(0, 400_000), "stderr": lines(400_000, 1_000_000)}
    assert done.exit["stored_bytes"] == 8_000_000
    short = await box.run(argv=["echo", "short"])
    for level in ("medium", "high", "low", "high"):
        await box.plane.sessions.changes.set_level(TESTER, box.session, level, {})
        assert done.command.result is not None
        # At low, as much is kept as one command at low may store.
        room = box.session.limits.memory_bytes // 64
        stored = done.command.result.stored_bytes
        assert stored == 8_000_000 if level != "low" else room - 1000 < stored <= room
        if level == "low":
            break
        assert await whole(box, done.command) == expected
        assert short.command.result is not None
        assert short.command.result.stored_bytes == 0
    printed = b""
    while len(printed) < stored:
        page = await running_command.read_output(
            box.session, done.command, len(printed), 0.0, whole=True
        )
        printed += b"".join(data for _, _, data in page.chunks)
        assert page.chunks
    assert (expected["stdout"] + expected["stderr"]).startswith(printed)
    page = await running_command.read_output(box.session, done.command, stored, 0.0, whole=True)
    assert (page.chunks, page.next, page.ended, page.lost) == ([], 8_000_000, True, False)
    await box.close()


async def test_what_a_level_change_cut_off_goes_along_too(new_box: BoxFactory) -> None:
    box = await new_box("high")
    script = f"{LINES} 0 999999; touch done; exec sleep 600"
    command = await box.start(argv=["bash", "-c", script], background=True)
    await box.printed(command, "0999999\n")
    await box.plane.sessions.changes.set_level(TESTER, box.session, "medium", {})
    assert command.result is not None
    assert (command.result.reason, command.result.stored_bytes) == (
        "level_changed",
        8_000_000,
    )
    assert (await whole(box, command))["stdout"] == lines(0, 1_000_000)
    await box.close()


async def test_an_agent_takes_no_output_for_a_command_of_its_own(high: Box) -> None:
    done = await high.run(argv=["echo", "x"])
    members = {"total": 3, "chunks": [["stdout", "eHh4"]]}
    with pytest.raises(Exception, match="belongs to this sandbox"):
        await high.ask("output.restore", command_id=done.command.id, **members)
    for chunks in ("x", [1], [["stdin", "eHh4"]], [["stdout", "x"]], [["stdout"]]):
        with pytest.raises(Exception, match="chunks must be"):
            await high.ask("output.restore", command_id="other", total=3, chunks=chunks)


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


async def test_short_output_comes_with_the_end(high: Box) -> None:
    done = await high.bash("echo out; echo err >&2", collect=True)
    assert (done.stdout, done.stderr) == ("out\n", "err\n")
    told = b"".join(data for _, _, data in done.command.output or ())
    assert sorted(told.split()) == [b"err", b"out"]
    for script, more in (("echo out", {}), ("yes | head -c 70000", {"collect": True})):
        done = await high.bash(script, **more)
        assert done.command.output is None
        assert len(done.stdout) == done.exit["output_bytes"] > 0

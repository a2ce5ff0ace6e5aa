"""Lines of a shell, joined streams, output in files and short time limits, in real sandboxes."""

import errno
import os

import pytest

from orchestrator.ground.errors import PermissionDeniedError, ValidationError
from tests.conftest import BoxFactory
from tests.support.box import Box
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_line_runs_as_people_write_it(high: Box) -> None:
    line = (
        "mkdir -p a && cd a && { echo one; echo two >&2; } 2>&1 | tail -n 1 > ../last; cat ../last"
    )
    done = await high.run(shell=line)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "two\n", "")
    assert done.command.argv == ["bash", "-c", line]
    (start,) = [
        event["args"]
        for event in await high.events("command.start")
        if event["args"]["command_id"] == done.command.id
    ]
    assert (start["shell"], start["argv"]) == (line, ["bash", "-c", line])


async def test_bash_reads_the_line(high: Box) -> None:
    done = await high.run(shell="x=(a b); [[ ${x[1]} == b ]] && echo {1..3}")
    assert done.stdout == "1 2 3\n"


async def test_no_line_runs_where_commands_are_listed(low: Box, medium: Box) -> None:
    for box in (low, medium):
        with pytest.raises(PermissionDeniedError) as refused:
            await box.run(shell="touch marker")
        assert refused.value.fields["rule"] == "shell-level"
        assert "marker" not in await box.paths()
        denied = (await box.events("command.start"))[-1]
        assert (denied["decision"], denied["rule"]) == ("deny", "shell-level")
        assert denied["args"]["shell"] == "touch marker"


async def test_joined_streams_are_in_the_order_of_their_writing(high: Box) -> None:
    numbers = range(2000)
    line = f"for i in {{0..{len(numbers) - 1}}}; do echo $i; echo $i >&2; done"
    done = await high.run(shell=line, merge=True)
    assert done.stdout == "".join(f"{number}\n{number}\n" for number in numbers)
    assert done.stderr == ""


async def test_a_failure_to_start_is_in_the_joined_stream(high: Box) -> None:
    done = await high.run(argv=["no-such-command"], merge=True)
    assert (done.exit_code, done.stderr) == (127, "")
    assert "no-such-command" in done.stdout


async def test_output_goes_to_a_file(low: Box, medium: Box, high: Box) -> None:
    for box in (low, medium, high):
        await box.mkdir("logs")
        await box.write("logs/out.txt", b"an earlier and longer content\n")
        done = await box.run("ls -d missing .", output_file="logs/out.txt")
        assert (done.stdout, done.stderr) == ("", "")
        said = await box.read("logs/out.txt")
        assert b".\n" in said
        assert b"missing" in said  # standard error, too
        assert b"earlier" not in said
        status = os.stat(box.workspace / "logs/out.txt")
        assert (status.st_uid, status.st_mode & 0o777) == (box.uid, 0o644)
        start = (await box.events("command.start"))[-1]
        assert start["args"]["output_file"] == "logs/out.txt"


async def test_a_files_output_may_be_longer_than_what_is_kept(new_box: BoxFactory) -> None:
    box = await new_box("high", limits={"memory_bytes": 268_435_456})
    done = await box.run(shell="yes | head -c 100000000", output_file="/workspace/long")
    assert (done.exit_code, done.exit["output_bytes"]) == (0, 0)
    assert (await box.stat("long")).size == 100_000_000
    await box.close()


async def test_a_file_of_output_grows_while_its_command_runs(high: Box) -> None:
    command = await high.start(
        shell="echo begun; read line; echo $line", output_file="growing", stdin_open=True
    )
    path = high.workspace / "growing"
    await until(lambda: path.exists() and path.read_bytes() == b"begun\n")
    await high.feed(command, b"ended\n", close=True)
    await high.finish(command)
    assert await high.read("growing") == b"begun\nended\n"


async def test_where_output_can_not_go(high: Box) -> None:
    await high.run(
        shell="mkdir directory; mkfifo pipe; ln -s directory inner; ln -s /tmp out; "
        "ln -s /tmp/file link"
    )
    for path, number in (
        ("directory", errno.EISDIR),
        ("missing/file", errno.ENOENT),
        ("out/file", errno.ENOTDIR),
        ("inner/file", errno.ENOTDIR),
        ("link", errno.ELOOP),
        ("pipe", errno.ENXIO),
    ):
        done = await high.run(shell="touch ran", output_file=path)
        assert done.exit_code in (126, 127), path
        assert f"write its output to '{path}': {os.strerror(number)}" in done.stderr
    assert "ran" not in await high.paths()
    done = await high.run(argv=["ls", "/tmp"])
    assert "file" not in done.stdout.split()
    for path in ("../file", "/tmp/file", "/workspace-2"):
        with pytest.raises(PermissionDeniedError) as refused:
            await high.run(argv=["true"], output_file=path)
        assert refused.value.fields["rule"] == "path-outside-workspace"
    with pytest.raises(ValidationError) as wrong:
        await high.run(argv=["true"], output_file=".")
    assert wrong.value.fields["field"] == "output_file"


async def test_the_workspaces_size_limits_a_file_of_output(new_box: BoxFactory) -> None:
    box = await new_box("low", limits={"workspace_bytes": 16 * 1024 * 1024})
    await box.write("file", b"x" * 1_000_000)
    done = await box.run(argv=["cat", *["file"] * 40], output_file="full")
    assert done.exit_code != 0
    assert done.exit["reason"] == "disk"
    assert (await box.stat("full")).size < 16 * 1024 * 1024
    await box.close()


async def test_a_time_limit_may_be_a_fraction(high: Box) -> None:
    done = await high.run(argv=["sleep", "600"], timeout=0.2)
    assert (done.exit["timed_out"], done.exit["reason"]) == (True, "timeout")
    start = (await high.events("command.start"))[-1]
    assert (start["args"]["timeout"], start["args"]["timeout_ms"]) == (1, 200)


async def test_commands_write_where_the_kernel_lets_them(high: Box) -> None:
    """What a command names for writing is permitted exactly where a shell could write it."""
    for path, allowed in (("/tmp/x", True), ("/dev/shm/x", True), ("/var/x", False)):
        made = await high.run(shell=f"mkdir {path} && rmdir {path}")
        assert (made.exit_code == 0) is allowed, path
        if allowed:
            assert (await high.run(f"mkdir {path}")).exit_code == 0
            assert (await high.run(f"rm -r {path}")).exit_code == 0
        else:
            with pytest.raises(PermissionDeniedError):
                await high.run(f"mkdir {path}")

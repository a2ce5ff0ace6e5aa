"""The output of oneshot tools is kept on the host, whatever they leave in its place."""

import asyncio
import hashlib
import time
from pathlib import Path
from typing import Any

import pytest

from api.views.commands import exit_members
from orchestrator.rules.tools.catalog import Catalog, parse_tool
from orchestrator.rules.tools.oneshot import Oneshot
from orchestrator.state.command import Command
from orchestrator.state.requests import ExecRequest
from orchestrator.work.approvals.approval_rows import Approval
from orchestrator.work.commands import captures
from tests.conftest import BoxFactory
from tests.support.box import TESTER, Box

pytestmark = pytest.mark.asyncio(loop_scope="module")

WRITES = """
[tool]
name = "writes"
[tool.evidence]
output_dir = "{evidence_dir}/{scan_id}-written"
[args.script]
type = "path"
[command]
template = "bash {script} {_output_file} {_scan_id}"
[output]
format = "xml"
"""
COPIES = """
[tool]
name = "copies"
[args.file]
type = "path"
[command]
template = "cp {file} {_output_file}"
[output]
"""
PRINTS = """
[tool]
name = "prints"
[tool.evidence]
capture = true
[args.count]
type = "integer"
[command]
template = "seq {count}"
[output]
"""


async def run(box: Box, text: str, **arguments: str) -> dict[str, Any]:
    """The result of the tool's command, with its id and evidence."""
    command = await start(box, text, ExecRequest(), **arguments)
    return {"id": command.id, **exit_members(await box.plane.executions.wait(box.session, command))}


async def start(box: Box, text: str, asked: ExecRequest, **arguments: str) -> Command:
    """The tool's running command."""
    plane, session = box.plane, box.session
    tool = parse_tool(text.encode(), "tool.clad.toml")
    assert isinstance(tool, Oneshot)
    rules = plane.reload.tools
    before, rules.catalog = rules.catalog, Catalog({Path("tool.clad.toml"): tool})
    try:
        request = await plane.governed_commands.request(
            TESTER, session, tool.name, arguments, asked, 0
        )
        assert isinstance(request, ExecRequest)
        return await plane.governed_commands.start(TESTER, session, request)
    finally:
        rules.catalog = before


async def written(box: Box, script: str) -> dict[str, Any]:
    """The result of a script that receives the path of its output file as `$1`."""
    await box.write("script", script.encode())
    return await run(box, WRITES, script="script")


def directory(box: Box) -> Path:
    return box.plane.settings.state_dir / "evidence" / box.session.key


def kept(box: Box, result: dict[str, Any]) -> bytes:
    """The content of the evidence file, which must match the reported evidence."""
    path: Path = directory(box) / str(result["id"]) / "output"
    assert path.stat().st_mode & 0o777 == 0o600
    data: bytes = path.read_bytes()
    told: dict[str, Any] = result["evidence"]
    assert told["sha256"] == f"sha256:{hashlib.sha256(data).hexdigest()}"
    assert (told["bytes"], told["reason"], told["left"]) == (len(data), None, False)
    return data


async def event(box: Box, result: dict[str, Any]) -> dict[str, Any]:
    events = await box.events("command.evidence")
    (found,) = [each for each in events if each["args"]["command_id"] == result["id"]]
    return found


async def test_the_file_is_kept_and_goes(high: Box) -> None:
    result = await written(high, 'seq 100000 > "$1"; echo "$1 $2"')
    expected = "".join(f"{number}\n" for number in range(1, 100_001)).encode()
    assert kept(high, result) == expected
    told = await event(high, result)
    assert told["result"]["output_hash"] == result["evidence"]["sha256"]
    assert told["args"]["file"] == f".paddock-{result['id']}/output.xml"
    assert [name for name in await high.paths() if "paddock" in name] == []
    named = directory(high) / f"{result['id']}-written"
    assert (named / "output").read_bytes() == expected
    # Each run has its own file.
    again = await written(high, 'echo "$1" > "$1"')
    assert kept(high, again) == f"/workspace/.paddock-{again['id']}/output.xml\n".encode()
    assert again["id"] != result["id"]


@pytest.mark.parametrize("level", ["low", "medium"])
async def test_commands_of_every_level_may_write_it(new_box: BoxFactory, level: str) -> None:
    box = await new_box(level)
    await box.write("notes", b"what is to be kept")
    result = await run(box, COPIES, file="notes")
    assert result["exit_code"] == 0
    assert kept(box, result) == b"what is to be kept"
    await box.close()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("", "No such file"),
        ('ln -s ../secret "$1"', "symbolic link"),
        ('mkdir ../elsewhere; d="${1%/*}"; echo x > elsewhere/output.xml', "No such file"),
        ('mkfifo "$1"', "not a regular file"),
        ('mkdir "$1"', "is a directory"),
        ('echo x > "$1"; chmod 0 "$1"', "Permission denied"),
        ('python3 -c "import socket, sys; socket.socket(1).bind(sys.argv[1])" "$1"', ""),
    ],
    ids=["nothing", "link", "elsewhere", "fifo", "directory", "unreadable", "socket"],
)
async def test_what_is_no_file_is_told_and_not_kept(high: Box, script: str, reason: str) -> None:
    await high.write("secret", b"of another file")
    result = await written(high, script)
    told: dict[str, Any] = result["evidence"]
    assert (told["sha256"], told["bytes"], told["left"]) == (None, 0, False)
    assert reason in told["reason"]
    assert (await event(high, result))["error"] == told["reason"]
    assert not (directory(high) / result["id"]).exists()
    assert await high.read("secret") == b"of another file"
    assert [name for name in await high.paths() if "paddock" in name] == []


async def test_a_directory_that_is_a_link_leads_nowhere(high: Box) -> None:
    await high.bash("mkdir -p taken; echo mine > taken/output.xml")
    result = await written(high, 'd="${1%/*}"; rmdir "$d"; ln -s taken "$d"')
    assert "symbolic link" in result["evidence"]["reason"]
    assert not (directory(high) / result["id"]).exists()


async def test_what_stays_in_its_directory_is_told(high: Box) -> None:
    result = await written(high, 'echo x > "$1"; touch "${1%/*}/more"')
    assert result["evidence"]["left"]
    assert result["evidence"]["sha256"] is not None
    place = f".paddock-{result['id']}"
    assert await high.paths(place) == [f"{place}/more"]
    await high.bash(f"rm -r {place}")


async def test_a_file_that_is_too_large_is_not_kept(new_box: BoxFactory) -> None:
    box = await new_box("high")
    result = await written(box, f'truncate -s {captures.MOST_BYTES + 1} "$1"')
    assert str(captures.MOST_BYTES) in result["evidence"]["reason"]
    assert not (directory(box) / result["id"]).exists()
    result = await written(box, f'head -c {captures.MOST_BYTES // 8} /dev/zero > "$1"')
    assert kept(box, result) == bytes(captures.MOST_BYTES // 8)
    await box.close()


async def test_a_file_that_grows_while_it_is_read_ends_at_the_bound(
    high: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(captures, "MOST_BYTES", 100_000)
    result = await written(high, 'head -c 100001 /dev/zero > "$1"')
    assert "100000" in result["evidence"]["reason"]


async def test_it_is_paid_from_the_budget_of_the_record(new_box: BoxFactory) -> None:
    box = await new_box("high", budget={"audit_bytes": 2**20})
    result = await written(box, 'head -c 3000000 /dev/zero > "$1"')
    assert "may be kept" in result["evidence"]["reason"]
    before = box.session.budget.stored()
    result = await written(box, 'head -c 300000 /dev/zero > "$1"')
    assert len(kept(box, result)) == 300_000
    assert box.session.budget.stored() != before
    await box.close()


@pytest.mark.parametrize("asked", [ExecRequest(background=True), ExecRequest(collect=True)])
async def test_what_was_printed_waits_for_its_evidence(high: Box, asked: ExecRequest) -> None:
    """Its output is not forgotten when other commands end before its evidence is stored."""
    async with high.session.capturing:
        command = await start(high, PRINTS, asked, count="3")
        await asyncio.wait([command.done])
        for number in range(12):
            await high.run(argv=["echo", str(number)])
    end = await high.plane.executions.wait(high.session, command)
    result = {"id": command.id, **exit_members(end)}
    assert kept(high, result) == b"1\n2\n3\n"


async def test_without_capture_the_file_goes_unread(high: Box) -> None:
    await high.write("script", b'echo x > "$1"')
    text = WRITES.replace('{scan_id}-written"', '{scan_id}-written"\ncapture = false')
    result = await run(high, text, script="script")
    assert result["evidence"]["sha256"] is None
    assert not (directory(high) / result["id"]).exists()
    assert [name for name in await high.paths() if "paddock" in name] == []


async def test_what_is_printed_is_kept_without_a_file(high: Box) -> None:
    result = await run(high, PRINTS, count="1000000")
    expected = b"".join(b"%d\n" % number for number in range(1, 1_000_001))
    assert kept(high, result) == expected
    assert not result["evidence"]["truncated"]
    assert kept(high, await run(high, PRINTS, count="0")) == b""
    silent = PRINTS.replace("[tool.evidence]\ncapture = true\n", "")
    assert (await run(high, silent, count="3"))["evidence"] is None


async def test_secrets_are_cut_out(new_box: BoxFactory) -> None:
    secret = f"hidden-{time.monotonic_ns()}"
    box = await new_box("high", secrets={"TOKEN": secret})
    result = await written(box, 'echo "a $TOKEN b" > "$1"')
    data = kept(box, result)
    assert secret.encode() not in data
    assert data.startswith(b"a ")
    assert data.endswith(b" b\n")
    await box.close()


async def test_a_command_that_is_refused_makes_nothing(new_box: BoxFactory) -> None:
    box = await new_box("low")
    await box.write("script", b"true")
    with pytest.raises(Exception, match="bash"):
        await run(box, WRITES, script="script")
    assert [name for name in await box.paths() if "paddock" in name] == []
    await box.close()


async def test_a_person_approves_whatever_the_name_of_the_file_will_be(high: Box) -> None:
    await high.write("notes", b"approved")
    plane, session = high.plane, high.session
    text = COPIES.replace('name = "copies"', 'name = "copies"\nhuman_approval = true')
    tool = parse_tool(text.encode(), "tool.clad.toml")
    assert isinstance(tool, Oneshot)
    rules = plane.reload.tools
    before, rules.catalog = rules.catalog, Catalog({Path("tool.clad.toml"): tool})
    asked = (TESTER, session, "copies", {"file": "notes"}, ExecRequest(), 0.0)
    try:
        waiting = await plane.governed_commands.request(*asked)
        assert isinstance(waiting, Approval)
        assert waiting.text == "cp notes '{_output_file}'"
        again = await plane.governed_commands.request(*asked)
        assert isinstance(again, Approval)
        assert again.id == waiting.id
        await plane.approvals.decide(TESTER, waiting.id, "approve", None)
        request = await plane.governed_commands.request(*asked)
    finally:
        rules.catalog = before
    assert isinstance(request, ExecRequest)
    command = await plane.governed_commands.start(TESTER, session, request)
    result = await plane.executions.wait(session, command)
    assert kept(high, {"id": command.id, **exit_members(result)}) == b"approved"

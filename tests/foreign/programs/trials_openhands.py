"""OpenHands' own RemoteWorkspace, unmodified, with a session's address and handle."""

import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from openhands.sdk.git.models import GitChangeStatus
from openhands.sdk.workspace import AsyncRemoteWorkspace, RemoteWorkspace

HOST, KEY = os.environ["OPENHANDS_URL"], os.environ["OPENHANDS_KEY"]
WORKING_DIR = "/workspace"


@pytest.fixture
def workspace() -> Iterator[RemoteWorkspace]:
    with RemoteWorkspace(host=HOST, api_key=KEY, working_dir=WORKING_DIR) as made:
        yield made


def test_both_streams_and_the_exit_code(workspace: RemoteWorkspace) -> None:
    result = workspace.execute_command("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3)
    assert not result.timeout_occurred


def test_lines_variables_and_pipes(workspace: RemoteWorkspace) -> None:
    result = workspace.execute_command("x='a b'\nfor i in 1 2; do echo \"$x$i\"; done | tac")
    assert (result.stdout, result.exit_code) == ("a b2\na b1\n", 0)


def test_a_directory(workspace: RemoteWorkspace) -> None:
    assert workspace.execute_command("mkdir -p /workspace/sub").exit_code == 0
    assert workspace.execute_command("pwd", cwd="/workspace/sub").stdout == "/workspace/sub\n"
    assert workspace.execute_command("pwd", cwd="/tmp").stdout == "/tmp\n"


def test_no_output_and_much_output(workspace: RemoteWorkspace) -> None:
    assert workspace.execute_command("true").stdout == ""
    result = workspace.execute_command("seq 400000; seq 400000 >&2", timeout=120)
    assert result.stdout == result.stderr == "".join(f"{n}\n" for n in range(1, 400_001))


def test_text_of_any_language(workspace: RemoteWorkspace) -> None:
    assert workspace.execute_command("printf 'grüße ✓ 日本'").stdout == "grüße ✓ 日本"
    assert workspace.execute_command("printf 'a\\377b'").stdout == "a\N{REPLACEMENT CHARACTER}b"


def test_output_arrives_while_a_command_runs(workspace: RemoteWorkspace) -> None:
    command_id = workspace.start_command("echo begun; sleep 1000", timeout=1000)
    until = time.monotonic() + 60
    while True:
        event = workspace.get_command_output(command_id)
        if event is not None and event["stdout"]:
            break
        assert time.monotonic() < until
    assert (event["stdout"], event["exit_code"]) == ("begun\n", None)
    workspace.stop_command(command_id)
    while (event := workspace.get_command_output(command_id) or {}).get("exit_code") is None:
        assert time.monotonic() < until
    assert event["exit_code"] == 137
    workspace.stop_command(command_id)
    workspace.stop_command("never")


def test_a_command_that_takes_too_long(workspace: RemoteWorkspace) -> None:
    result = workspace.execute_command("echo begun; sleep 1000", timeout=2)
    assert (result.stdout, result.exit_code) == ("begun\n", -1)
    assert result.timeout_occurred


def test_files_up_and_down(workspace: RemoteWorkspace, tmp_path: Path) -> None:
    data = bytes(range(256)) * 8000
    source, target = tmp_path / "source.bin", tmp_path / "deep" / "target.bin"
    source.write_bytes(data)
    done = workspace.file_upload(source, "/workspace/new/place.bin")
    assert (done.success, done.file_size, done.error) == (True, len(data), None)
    done = workspace.file_download("/workspace/new/place.bin", target)
    assert (done.success, target.read_bytes()) == (True, data)
    assert workspace.file_upload(b"", "/workspace/empty").success
    assert workspace.file_upload(b"x", "/tmp/x").success


def test_files_that_are_refused_or_missing(workspace: RemoteWorkspace, tmp_path: Path) -> None:
    done = workspace.file_upload(b"x", "/etc/passwd")
    assert not done.success
    assert "path-outside-workspace" in (done.error or "")
    done = workspace.file_download("/workspace/never", tmp_path / "x")
    assert not done.success
    assert "never" in (done.error or "")


REPOSITORY = """
git init -q repo && cd repo && git config user.name n && git config user.email e@x
echo one > kept; echo two > gone; echo three > old; git add -A; git commit -qm first
echo more >> kept; rm gone; git mv old moved; echo new > added
"""


def test_what_git_tells(workspace: RemoteWorkspace) -> None:
    assert workspace.execute_command(REPOSITORY).exit_code == 0
    found = {str(each.path): each.status for each in workspace.git_changes("repo")}
    assert found == {
        "kept": GitChangeStatus.UPDATED,
        "gone": GitChangeStatus.DELETED,
        "old": GitChangeStatus.DELETED,
        "moved": GitChangeStatus.ADDED,
        "added": GitChangeStatus.ADDED,
    }
    diff = workspace.git_diff("repo/kept")
    assert (diff.original, diff.modified) == ("one", "one\nmore")
    diff = workspace.git_diff("repo/gone")
    assert (diff.original, diff.modified) == ("two", "")
    with pytest.raises(Exception, match="git failed"):
        workspace.git_changes("/tmp")


def test_it_is_alive(workspace: RemoteWorkspace) -> None:
    assert workspace.alive
    assert workspace.get_server_info()["title"] == "Paddock"
    elsewhere = RemoteWorkspace(host="http://127.0.0.1:9", api_key=KEY, working_dir="/")
    assert not elsewhere.alive


def test_a_wrong_key() -> None:
    with RemoteWorkspace(host=HOST, api_key="pdk_wrong", working_dir=WORKING_DIR) as workspace:
        result = workspace.execute_command("true")
    assert result.exit_code == -1
    assert "the key or handle is not known" in result.stderr


@pytest.fixture
async def asynchronous() -> AsyncIterator[AsyncRemoteWorkspace]:
    made = AsyncRemoteWorkspace(host=HOST, api_key=KEY, working_dir=WORKING_DIR)
    yield made
    await made.client.aclose()


@pytest.mark.anyio
async def test_the_asynchronous_client(asynchronous: AsyncRemoteWorkspace) -> None:
    result = await asynchronous.execute_command("echo out; exit 4")
    assert (result.stdout, result.exit_code) == ("out\n", 4)
    assert (await asynchronous.file_upload(b"data", "/workspace/a")).success
    assert asynchronous.alive


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"

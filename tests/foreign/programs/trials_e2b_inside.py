"""What E2B's SDK for Python does inside a sandbox: each method of commands, files, pty, watches."""

import asyncio
import io
import os
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any
from urllib.error import HTTPError

import pytest
from e2b import (
    AsyncSandbox,
    AuthenticationException,
    CommandExitException,
    FileType,
    InvalidArgumentException,
    NotFoundException,
    PtySize,
    Sandbox,
    SandboxException,
    TimeoutException,
)
from e2b.exceptions import SandboxNotRunningException

LEVEL = {"paddock.level": "high"}


@pytest.fixture(scope="module", autouse=True)
def address() -> Iterator[None]:
    """The three lines that are changed."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("E2B_API_KEY", os.environ["PADDOCK_KEY"])
        patched.setenv("E2B_API_URL", os.environ["PADDOCK_URL"] + "/compat/e2b")
        patched.setenv("E2B_SANDBOX_URL", os.environ["PADDOCK_URL"] + "/compat/e2b")
        yield


@pytest.fixture(scope="module")
def box() -> Iterator[Any]:
    box = Sandbox.create(timeout=600, metadata=LEVEL, envs={"OF_THE_SANDBOX": "1"})
    yield box
    box.kill()


@pytest.fixture
def folder(box: Any, request: pytest.FixtureRequest) -> str:
    name = str(request.node.name)
    box.files.make_dir(name)
    return name


def until(found: Callable[[], Any]) -> Any:
    ends = time.monotonic() + 60
    while not (value := found()):
        assert time.monotonic() < ends
        time.sleep(0.05)
    return value


# Commands.


def test_run(box: Any) -> None:
    done = box.commands.run("echo out; echo err >&2; pwd")
    assert (done.stdout, done.stderr, done.exit_code) == ("out\n/home/user\n", "err\n", 0)


def test_run_with_special_characters(box: Any) -> None:
    text = "!@#$%^&*()_+ 'x' äöü 漢字"
    assert box.commands.run(f'echo "{text}"'.replace("$%", r"\$%")).stdout == text + "\n"


def test_run_many_lines(box: Any) -> None:
    assert box.commands.run("for i in 1 2 3\ndo\n  echo $i\ndone").stdout == "1\n2\n3\n"


def test_run_that_fails(box: Any) -> None:
    with pytest.raises(CommandExitException) as failed:
        box.commands.run("echo before; exit 3")
    assert (failed.value.exit_code, failed.value.stdout) == (3, "before\n")


def test_run_with_variables(box: Any) -> None:
    done = box.commands.run("echo $A $OF_THE_SANDBOX", envs={"A": "b c"})
    assert done.stdout == "b c 1\n"
    assert box.commands.run('echo "$A"').stdout == "\n"


def test_run_in_a_directory(box: Any, folder: str) -> None:
    assert box.commands.run("pwd", cwd=folder).stdout == f"/home/user/{folder}\n"
    assert box.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
    with pytest.raises(InvalidArgumentException, match="does not exist"):
        box.commands.run("pwd", cwd="/nowhere")


def test_run_with_a_time_out(box: Any) -> None:
    with pytest.raises(TimeoutException):
        box.commands.run("sleep 60", timeout=1)
    until(lambda: not [each for each in box.commands.list() if "sleep 60" in each.args])


def test_run_without_a_time_out(box: Any) -> None:
    assert box.commands.run("sleep 1; echo done", timeout=0).stdout == "done\n"


def test_output_is_told_as_it_comes(box: Any) -> None:
    out: list[str] = []
    err: list[str] = []
    box.commands.run("echo a; echo b >&2", on_stdout=out.append, on_stderr=err.append)
    assert ("".join(out), "".join(err)) == ("a\n", "b\n")


def test_large_output(box: Any) -> None:
    done = box.commands.run("head -c 4000000 /dev/zero | tr '\\0' x")
    assert len(done.stdout) == 4_000_000


def test_output_that_is_no_text(box: Any) -> None:
    assert box.commands.run(r"printf 'a\377b'").stdout == "a�b"


def test_background(box: Any) -> None:
    running = box.commands.run("sleep 0.5; echo done", background=True)
    (found,) = [each for each in box.commands.list() if each.pid == running.pid]
    assert (found.cmd, found.args) == ("/bin/bash", ["-l", "-c", "sleep 0.5; echo done"])
    assert running.wait().stdout == "done\n"
    assert not [each for each in box.commands.list() if each.pid == running.pid]


def test_kill(box: Any) -> None:
    running = box.commands.run("sleep 60", background=True)
    assert running.kill() is True
    with pytest.raises(CommandExitException) as killed:
        running.wait()
    assert (killed.value.exit_code, killed.value.error) == (-1, "signal: killed")
    assert box.commands.kill(running.pid) is False
    assert box.commands.kill(999_999) is False


def test_connect(box: Any) -> None:
    first = box.commands.run("read x; echo got $x", background=True, stdin=True)
    first.disconnect()
    again = box.commands.connect(first.pid)
    assert again.pid == first.pid
    box.commands.send_stdin(first.pid, "line\n")
    assert again.wait().stdout == "got line\n"
    with pytest.raises(NotFoundException):
        box.commands.connect(999_999)


def test_standard_input(box: Any) -> None:
    running = box.commands.run("cat", background=True, stdin=True)
    box.commands.send_stdin(running.pid, "one\n")
    running.send_stdin(b"two\n")
    box.commands.stream_input(running.pid, ["three\n", b"four\n"])
    running.close_stdin()
    assert running.wait().stdout == "one\ntwo\nthree\nfour\n"
    with pytest.raises(NotFoundException):
        box.commands.send_stdin(running.pid, "late")


def test_large_standard_input(box: Any) -> None:
    running = box.commands.run("wc -c", background=True, stdin=True)
    box.commands.send_stdin(running.pid, "x" * 3_000_000)
    box.commands.close_stdin(running.pid)
    assert running.wait().stdout == "3000000\n"


def test_users(box: Any) -> None:
    assert box.commands.run("echo x", user="user").stdout == "x\n"
    with pytest.raises(AuthenticationException):
        box.commands.run("echo x", user="nobody-of-that-name")


def test_many_commands_at_once(box: Any) -> None:
    running = [box.commands.run(f"sleep 0.2; echo {n}", background=True) for n in range(8)]
    assert [each.wait().stdout for each in running] == [f"{n}\n" for n in range(8)]


# Files.


def test_write_and_read(box: Any, folder: str) -> None:
    written = box.files.write(f"{folder}/deep/er/a.txt", "content äöü")
    assert (written.name, written.path) == ("a.txt", f"/home/user/{folder}/deep/er/a.txt")
    assert box.files.read(written.path) == "content äöü"
    assert box.files.read(written.path, format="bytes") == "content äöü".encode()
    assert b"".join(box.files.read(written.path, format="stream")) == "content äöü".encode()
    assert box.files.read(written.path, gzip=True) == "content äöü"
    box.files.write(written.path, "")
    assert box.files.read(written.path) == ""


def test_write_in_each_way(box: Any, folder: str) -> None:
    data = bytes(range(256)) * 5000
    ways: list[dict[str, Any]] = [{}, {"gzip": True}, {"use_octet_stream": True}]
    for way in ways:
        box.files.write(f"{folder}/a", data, **way)
        assert box.files.read(f"{folder}/a", format="bytes") == data, way
    box.files.write(f"{folder}/b", io.BytesIO(data))
    assert box.files.read(f"{folder}/b", format="bytes") == data


def test_write_several(box: Any, folder: str) -> None:
    names = [f"/home/user/{folder}/{n}" for n in range(5)]
    written = box.files.write_files([{"path": name, "data": name} for name in names])
    assert [each.path for each in written] == names
    assert [box.files.read(name) for name in names] == names
    assert box.files.write_files([]) == []


def test_odd_names(box: Any, folder: str) -> None:
    for name in ("with space", 'quo"te', "back\\slash", "äöü", "a;b", "per%22cent", "plus+"):
        path = f"/home/user/{folder}/{name}"
        assert box.files.write(path, name).path == path
        assert box.files.read(path) == name
        assert box.files.get_info(path).name == name


def test_attributes(box: Any, folder: str) -> None:
    path = f"{folder}/a"
    assert box.files.write(path, "1", metadata={"team": "x", "n": "1"}).metadata == {
        **{"team": "x", "n": "1"}
    }
    assert box.files.get_info(path).metadata == {"team": "x", "n": "1"}
    assert [each.metadata for each in box.files.list(folder)] == [{"team": "x", "n": "1"}]
    assert box.files.rename(path, f"{folder}/b").metadata == {"team": "x", "n": "1"}
    box.files.write(f"{folder}/b", "2")
    assert box.files.get_info(f"{folder}/b").metadata is None


def test_reading_what_is_not_there(box: Any, folder: str) -> None:
    with pytest.raises(NotFoundException):
        box.files.read(f"{folder}/none")
    with pytest.raises(InvalidArgumentException):
        box.files.read(folder)


def test_info(box: Any, folder: str) -> None:
    box.files.write(f"{folder}/a", "12345")
    box.commands.run("chmod 750 a; ln -s a link; ln -s . itself", cwd=folder)
    info = box.files.get_info(f"{folder}/a")
    assert (info.type, info.size, info.mode) == (FileType.FILE, 5, 0o750)
    assert (info.permissions, info.owner, info.group) == ("-rwxr-x---", "user", "user")
    assert abs(info.modified_time.timestamp() - time.time()) < 600
    assert box.files.get_info(folder).type == FileType.DIR
    link = box.files.get_info(f"{folder}/link")
    assert (link.type, link.symlink_target) == (FileType.FILE, f"/home/user/{folder}/a")
    assert box.files.get_info(f"{folder}/itself").type == FileType.DIR
    with pytest.raises(NotFoundException):
        box.files.get_info(f"{folder}/none")


def test_exists(box: Any, folder: str) -> None:
    box.files.write(f"{folder}/a", "")
    assert [box.files.exists(f"{folder}{name}") for name in ("", "/a", "/b")] == [
        *(True, True, False)
    ]


def test_list(box: Any, folder: str) -> None:
    for name in ("b/c/d", "a", "b.txt"):
        box.files.write(f"{folder}/{name}", "")

    def names(**given: int) -> list[str]:
        found = box.files.list(folder, **given)
        return [each.path.removeprefix(f"/home/user/{folder}/") for each in found]

    assert names() == ["a", "b", "b.txt"]
    assert names(depth=2) == ["a", "b", "b/c", "b.txt"]
    assert names(depth=3) == ["a", "b", "b/c", "b/c/d", "b.txt"]
    with pytest.raises(InvalidArgumentException, match="depth should be at least 1"):
        box.files.list(folder, depth=-1)
    with pytest.raises(NotFoundException):
        box.files.list(f"{folder}/none")
    with pytest.raises(InvalidArgumentException):
        box.files.list(f"{folder}/a")


def test_make_dir(box: Any, folder: str) -> None:
    assert box.files.make_dir(f"{folder}/a/b/c") is True
    assert box.files.make_dir(f"{folder}/a/b/c") is False
    box.files.write(f"{folder}/file", "")
    with pytest.raises(InvalidArgumentException):
        box.files.make_dir(f"{folder}/file")


def test_rename(box: Any, folder: str) -> None:
    box.files.write(f"{folder}/a", "x")
    moved = box.files.rename(f"{folder}/a", f"{folder}/new/b")
    assert moved.path == f"/home/user/{folder}/new/b"
    assert box.files.read(moved.path) == "x"
    assert not box.files.exists(f"{folder}/a")
    with pytest.raises(NotFoundException):
        box.files.rename(f"{folder}/none", f"{folder}/c")


def test_remove(box: Any, folder: str) -> None:
    box.files.write(f"{folder}/a/b/c", "")
    box.files.remove(f"{folder}/a")
    assert not box.files.exists(f"{folder}/a")
    box.files.remove(f"{folder}/a")


def test_signed_addresses(box: Any, folder: str) -> None:
    box.files.write(f"{folder}/a", "content")
    with urllib.request.urlopen(box.download_url(f"{folder}/a")) as answer:
        assert answer.read() == b"content"
    address = box.download_url(f"{folder}/a", use_signature_expiration=60)
    with urllib.request.urlopen(address) as answer:
        assert answer.read() == b"content"
    upload = urllib.request.Request(
        box.upload_url(f"{folder}/b"), b"new", {"Content-Type": "application/octet-stream"}
    )
    with urllib.request.urlopen(upload) as answer:
        assert answer.status == 200
    assert box.files.read(f"{folder}/b") == "new"
    with pytest.raises(HTTPError) as refused:
        urllib.request.urlopen(box.download_url(f"{folder}/a", use_signature_expiration=-10))
    assert refused.value.code == 401
    assert b"signature is already expired" in refused.value.read()


# Watches.


def told(events: list[Any]) -> list[tuple[str, str]]:
    return [(each.type.value, each.name) for each in events]


def test_a_new_file_is_three_events(box: Any, folder: str) -> None:
    watch = box.files.watch_dir(folder)
    box.files.write(f"{folder}/a", "x")
    assert told(watch.get_new_events()) == [("create", "a"), ("chmod", "a"), ("write", "a")]
    assert watch.get_new_events() == []
    watch.stop()
    with pytest.raises(SandboxException):
        watch.get_new_events()


def test_changes_are_told(box: Any, folder: str) -> None:
    box.files.write(f"{folder}/a", "x")
    watch = box.files.watch_dir(folder)
    box.files.write(f"{folder}/a", "y")
    assert ("write", "a") in told(watch.get_new_events())
    box.commands.run("chmod 600 a", cwd=folder)
    assert told(watch.get_new_events()) == [("chmod", "a")]
    box.files.rename(f"{folder}/a", f"{folder}/b")
    assert told(watch.get_new_events()) == [("rename", "a"), ("create", "b")]
    box.files.remove(f"{folder}/b")
    assert told(watch.get_new_events()) == [("remove", "b")]
    watch.stop()


def test_a_watch_below(box: Any, folder: str) -> None:
    box.files.make_dir(f"{folder}/sub")
    flat, whole = box.files.watch_dir(folder), box.files.watch_dir(folder, recursive=True)
    box.files.write(f"{folder}/sub/a", "x")
    assert ("create", "sub/a") in told(whole.get_new_events())
    assert told(flat.get_new_events()) == []
    for watch in (flat, whole):
        watch.stop()


def test_events_with_their_entries(box: Any, folder: str) -> None:
    watch = box.files.watch_dir(folder, include_entry=True)
    box.files.write(f"{folder}/a", "12345")
    (first, *_) = watch.get_new_events()
    assert (first.entry.path, first.entry.size) == (f"/home/user/{folder}/a", 5)
    watch.stop()


def test_a_watch_of_what_is_no_directory(box: Any, folder: str) -> None:
    box.files.write(f"{folder}/a", "x")
    with pytest.raises(InvalidArgumentException):
        box.files.watch_dir(f"{folder}/a")
    with pytest.raises(NotFoundException):
        box.files.watch_dir(f"{folder}/none")


# Terminals.


class Screen:
    """What a terminal shows, read in a thread of its own."""

    def __init__(self, terminal: Any) -> None:
        self.seen = b""
        self.terminal = terminal
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        for _, _, data in self.terminal:
            self.seen += data or b""

    def shows(self, text: bytes) -> None:
        until(lambda: text in self.seen)


def test_terminal(box: Any) -> None:
    terminal = box.pty.create(PtySize(rows=24, cols=80), envs={"A": "of-it"}, cwd="/tmp")
    screen = Screen(terminal)
    box.pty.send_stdin(terminal.pid, b"echo $A-$PWD-$TERM; stty size\n")
    screen.shows(b"of-it-/tmp-xterm-256color\r\n24 80\r\n")
    box.pty.resize(terminal.pid, PtySize(rows=40, cols=120))
    box.pty.stream_input(terminal.pid, ["stty ", b"size\n"])
    screen.shows(b"40 120\r\n")
    box.pty.send_stdin(terminal.pid, b"exit 0\n")
    screen.thread.join(60)
    assert terminal.wait().exit_code == 0


def test_a_terminal_again(box: Any) -> None:
    terminal = box.pty.create(PtySize(rows=24, cols=80))
    box.pty.send_stdin(terminal.pid, b"X=kept\n")
    terminal.disconnect()
    again = box.pty.connect(terminal.pid)
    screen = Screen(again)
    box.pty.send_stdin(terminal.pid, b"echo [$X]\n")
    screen.shows(b"[kept]\r\n")
    assert box.pty.kill(terminal.pid) is True
    assert box.pty.kill(terminal.pid) is False


# The sandbox.


def test_a_killed_sandbox_is_not_running() -> None:
    box = Sandbox.create(timeout=600, metadata=LEVEL)
    assert box.is_running() is True
    running = box.commands.run("sleep 60", background=True)
    box.kill()
    assert box.is_running() is False
    with pytest.raises(SandboxException):
        running.wait()
    with pytest.raises(SandboxNotRunningException):
        box.commands.run("echo x")
    with pytest.raises(SandboxException):
        box.files.read("a")


def test_a_level_without_a_shell_says_why() -> None:
    box = Sandbox.create(timeout=600, metadata={"paddock.level": "medium"})
    try:
        assert box.commands.run("echo plain").stdout == "plain\n"
        with pytest.raises(SandboxException, match="shell-operators"):
            box.commands.run("echo a | wc -c")
        with pytest.raises(SandboxException, match="shell-level"):
            box.pty.create(PtySize(rows=24, cols=80))
    finally:
        box.kill()


# The same for asyncio.


async def _asynchronously() -> None:
    box = await AsyncSandbox.create(timeout=600, metadata=LEVEL)
    try:
        assert (await box.commands.run("echo x")).stdout == "x\n"
        running = await box.commands.run("cat", background=True, stdin=True)
        await box.commands.send_stdin(running.pid, "line\n")
        await box.commands.close_stdin(running.pid)
        assert (await running.wait()).stdout == "line\n"
        await box.files.make_dir("watched")
        events: asyncio.Queue[Any] = asyncio.Queue()
        watch = await box.files.watch_dir("watched", on_event=events.put_nowait)
        await box.files.write("watched/a", "x")
        first = [await asyncio.wait_for(events.get(), 60) for _ in range(3)]
        assert told(first) == [("create", "a"), ("chmod", "a"), ("write", "a")]
        await watch.stop()
        assert await box.files.read("watched/a") == "x"
        seen: list[bytes] = []
        terminal = await box.pty.create(PtySize(rows=24, cols=80), on_data=seen.append)
        await box.pty.send_stdin(terminal.pid, b"echo $((6*7)); exit 0\n")
        assert (await terminal.wait()).exit_code == 0
        assert b"42\r\n" in b"".join(seen)
        results = await asyncio.gather(*(box.commands.run(f"echo {n}") for n in range(8)))
        assert [each.stdout for each in results] == [f"{n}\n" for n in range(8)]
    finally:
        await box.kill()


def test_asynchronously() -> None:
    asyncio.run(_asynchronously())

"""Shells that keep their state, in real sandboxes."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from paddock import Async, BusyError, ConflictError, Paddock, Session
from paddock import Shell as AnyShell
from tests.support.limits import WAIT_SECONDS
from tests.support.server import Server, leaving_nothing

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Long enough for a busy machine; a command that hangs is told by it.
SECONDS = 60.0

Shell = AnyShell[Async]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(sandbox_image: str) -> AsyncIterator[Server]:
    """A server; at its end, nothing that the sessions made is left."""
    async with leaving_nothing(PADDOCK_IMAGE=sandbox_image) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(server: Server) -> AsyncIterator[Session]:
    async with Paddock(server.url, server.key) as paddock:
        made = await paddock.sessions.create(
            permission_level="high", env={"COLOUR": "green"}, secrets={"TOKEN": "hidden-value-1"}
        )
        yield made
        await made.close(purge=True)


NUMBERS = itertools.count()


@pytest_asyncio.fixture(loop_scope="module")
async def shell(session: Session) -> AsyncIterator[Shell]:
    made = await session.shells.create(f"s{next(NUMBERS)}")
    yield made
    if made.name in [each.name for each in await session.shells.list()]:
        await made.close()


async def said(shell: Shell, command: str) -> str:
    answer = await shell.run(command, timeout=SECONDS)
    assert (answer.status, answer.error) == ("finished", None), answer
    return answer.output


async def test_it_has_the_compiled_guard(shell: Shell) -> None:
    assert await said(shell, "cut -c1-5 /proc/$PPID/cmdline | tr -d '\\0'") == "guard\n"


async def test_directory_variables_functions_and_jobs_stay(session: Session) -> None:
    await session.files.mkdir("made here")
    shell = await session.shells.create("main", cwd="made here", env={"OWN": "1"})
    assert shell.info.cwd == "/workspace/made here"
    assert await said(shell, "pwd; echo $COLOUR $OWN") == "/workspace/made here\ngreen 1\n"
    await said(
        shell, "cd /tmp; x='a b'; f() { echo \"<$x>\"; }; declare -A m=([k]=v); alias g='echo'"
    )
    assert await said(shell, "pwd; f; echo ${m[k]}; g aliased") == "/tmp\n<a b>\nv\naliased\n"
    await said(shell, "false || (exit 3)")
    assert await said(shell, "echo $?") == "3\n"
    await said(shell, "sleep 100 & job=$!")
    assert "sleep 100" in await said(shell, "jobs")
    assert (await said(shell, "kill $job; wait $job; echo $?")).endswith("143\n")
    assert [each.name for each in await session.shells.list()] == ["main"]
    assert (await session.shells.create("main", cwd="made here", env={"OWN": "1"})).name == "main"
    with pytest.raises(ConflictError):
        await session.shells.create("main")
    other = await session.shells.create("other")
    assert await said(other, "pwd; echo $x") == "/workspace\n\n"
    for each in (shell, other):
        await each.close()
    assert await session.shells.list() == ()
    with pytest.raises(ConflictError) as gone:
        await shell.run("true")
    assert "closed" in str(gone.value)
    assert await said(await session.shells.create("main"), "echo $x new") == "new\n"


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("", ""),
        ("# nothing", ""),
        ("   \n\n", ""),
        ("cat <<END\n$((6 * 7))\n'quoted'\nEND", "42\n'quoted'\n"),
        ("for i in 1 2\ndo\n  echo $i\ndone", "1\n2\n"),
        ("for i in 1 2; do break; done; echo on", "on\n"),
        ("printf 'no line end'", "no line end"),
        ("printf 'a\\r\\n\\tb\\n'", "a\r\n\tb\n"),
        ("echo both; echo streams >&2", "both\nstreams\n"),
        ("printf '\\377x'", "\ufffdx"),
        ("echo 'é 😀'", "é 😀\n"),
        ("yes | head -c 100000 | wc -c", "100000\n"),
        ("echo ${#0} >/dev/null; : '" + "x" * 100_000 + "'; echo long", "long\n"),
    ],
)
async def test_texts(shell: Shell, text: str, output: str) -> None:
    answer = await shell.run(text, timeout=SECONDS)
    assert (answer.output, answer.exit_code, answer.status) == (output, 0, "finished")
    assert await said(shell, "echo usable") == "usable\n"


async def test_nothing_of_a_wrong_syntax_runs(shell: Shell) -> None:
    for wrong in ("touch /tmp/ran\nif", "touch /tmp/ran; echo ((", "touch /tmp/ran\n'", "}"):
        answer = await shell.run(wrong, timeout=SECONDS)
        assert (answer.status, answer.exit_code, answer.output) == ("syntax_error", 2, "")
        assert answer.error is not None
        assert "line" in answer.error
        assert answer.running is False
    assert await said(shell, "ls /tmp/ran 2>/dev/null || echo usable") == "usable\n"
    await said(shell, "shopt -s extglob; set -e")
    assert (
        await said(shell, "x=abc; echo ${x/+(b)/-}; case x in !(y)) echo ext;; esac")
        == "a-c\next\n"
    )
    assert (await shell.run("done", timeout=SECONDS)).status == "syntax_error"
    assert await said(shell, "echo usable") == "usable\n"


async def test_an_interactive_program_is_driven(shell: Shell) -> None:
    answer = await shell.run("python3 -q -i -c 'x = 6'", expect=">>> ", timeout=SECONDS)
    assert (answer.status, answer.running, answer.exit_code) == ("matched", True, None)
    with pytest.raises(BusyError):
        await shell.run("echo other")
    answer = await shell.input("print(x * 7)\n", expect="42", timeout=SECONDS)
    assert answer.status == "matched"
    answer = await shell.input("exit(5)\n", timeout=SECONDS, expect="never shown")
    assert (answer.status, answer.exit_code, answer.running) == ("finished", 5, False)
    with pytest.raises(ConflictError):
        await shell.input("echo no command\n")
    answer = await shell.run("read -p 'name? ' name; echo \"hello $name\"", timeout=SECONDS)
    assert (answer.status, answer.output) == ("waiting", "name? ")
    answer = await shell.input("bob\n", timeout=SECONDS)
    assert (answer.status, answer.output) == ("finished", "hello bob\n")
    assert await said(shell, "echo $name") == "bob\n"


async def test_what_a_job_prints_later_comes_with_the_next_answer(
    shell: Shell,
) -> None:
    await said(shell, "mkfifo /tmp/go; (set +m; read x </tmp/go; echo later) &")
    assert "later\n" in await said(shell, "echo >/tmp/go; wait")


async def test_an_interrupt_leaves_the_shell(shell: Shell) -> None:
    for command in (
        "sleep 1000; echo not this",
        "while :; do :; done",
        "for i in 1 2; do sleep 1000; done",
    ):
        running = asyncio.create_task(shell.run(f"v=1; echo began; {command}", timeout=SECONDS))
        await becomes(shell, running=True)
        await shell.interrupt()
        answer = await running
        assert (answer.status, answer.exit_code) == ("finished", 130)
        assert "not this" not in answer.output
    assert await said(shell, "echo $v") == "1\n"
    assert (await shell.interrupt()).running is False


async def becomes(shell: Shell, *, running: bool) -> None:
    """Waits until a command runs in the shell, or none does."""
    async with asyncio.timeout(WAIT_SECONDS):
        while (await shell.refresh()).running is not running:
            pass


async def test_the_end_of_the_time(shell: Shell) -> None:
    # What is before a sleep must have been done by then.
    answer = await shell.run("v=2; echo out; sleep 1000", timeout=2)
    assert (answer.status, answer.running, answer.ended) == ("timed_out", False, None)
    assert answer.output.startswith("out\n")
    assert answer.exit_code == 130
    answer = await shell.run("(trap '' INT; sleep 1000)", timeout=2)
    assert (answer.status, answer.exit_code, answer.ended) == ("timed_out", 137, None)
    assert await said(shell, "echo $v") == "2\n"
    answer = await shell.run("trap '' INT; while :; do :; done", timeout=1)
    assert (answer.status, answer.running, answer.ended) == ("timed_out", False, "timeout")


@pytest.mark.parametrize(
    ("command", "exit_code", "ended"),
    [
        ("exit 3", 3, "exited"),
        ("exec true", 0, "exited"),
        ("exec sh -c 'exit 4'", 4, "exited"),
        ("set -e; false", 1, "exited"),
        ("kill -9 $$", 137, "exited"),
        ('for fd in {3..1023}; do eval "exec $fd>&-"; done', 70, "exited"),
    ],
)
async def test_a_command_that_ends_its_shell(
    shell: Shell,
    session: Session,
    command: str,
    exit_code: int,
    ended: str,
) -> None:
    answer = await shell.run(command, timeout=SECONDS)
    assert (answer.status, answer.exit_code, answer.ended) == ("ended", exit_code, ended)
    assert answer.running is False
    with pytest.raises(ConflictError):
        await shell.run("true")
    assert shell.name not in [each.name for each in await session.shells.list()]


async def test_endless_output_is_bounded(shell: Shell) -> None:
    answer = await shell.run("echo first; yes", timeout=1)
    assert (answer.status, answer.ended) == ("timed_out", None)
    assert answer.output.startswith("first\ny\n")
    assert answer.output_bytes > answer.cut_bytes > 0
    assert len(answer.output) < 300_000
    assert await said(shell, "echo usable") == "usable\n"


async def test_a_client_that_leaves_stops_its_command(
    shell: Shell,
) -> None:
    running = asyncio.create_task(shell.run("echo began; sleep 1000", timeout=SECONDS))
    await becomes(shell, running=True)
    running.cancel()
    await becomes(shell, running=False)
    assert "usable" in await said(shell, "echo usable")


async def test_secrets_are_cut_out_of_answers_and_records(
    session: Session,
    shell: Shell,
) -> None:
    answer = await shell.run("echo hidden-value-1; echo $TOKEN | rev | rev", timeout=SECONDS)
    assert "hidden-value-1" not in answer.output
    assert answer.output.count("[redacted") == 2 or answer.output.count("***") >= 1
    events = [event async for event in session.audit.events(operation="shell.run")]
    assert events
    assert "hidden-value-1" not in str([event.raw for event in events])
    terminal = await session.terminals.get(shell.info.pty)
    assert b"hidden-value-1" not in await terminal.recording()


async def test_a_shell_ends_with_its_level_and_its_control_plane(server: Server) -> None:
    async with Paddock(server.url, server.key) as paddock:
        made = await paddock.sessions.create(permission_level="high")
        shell = await made.shells.create()
        running = asyncio.create_task(shell.run("sleep 4321", timeout=SECONDS))
        await becomes(shell, running=True)
        await made.settings.set(permission_level="medium")
        # Its command may end before the shell does.
        assert (await running).running is False
        with pytest.raises(ConflictError, match="level_changed"):
            await shell.refresh()
        await made.settings.set(permission_level="high")
        shell = await made.shells.create()
        answer = await shell.run("echo before; sleep 4321", expect="before\n", timeout=SECONDS)
        assert answer.status == "matched"
        await server.kill()
        await server.start()
    async with Paddock(server.url, server.key) as paddock:
        made = await paddock.sessions.get(made.id)
        with pytest.raises(ConflictError, match="control_plane_restarted"):
            await made.shells.get()
        processes = (await made.refresh()).processes or []
        assert not [each for each in processes if "4321" in each.argv]
        assert await said(await made.shells.create(), "echo new") == "new\n"
        with pytest.raises(ConflictError, match="enter directory"):
            await made.shells.create("lost", cwd="no/such/directory")
        await made.close(purge=True)


async def test_programs_that_read_keys_are_driven(shell: Shell) -> None:
    """A menu without line editing, a password without echo, and a page that is not a line."""
    menu = "read -rsn1 key; echo got $key; read -rs -p 'password: ' word; echo; echo ${#word}"
    answer = await shell.run(menu, timeout=SECONDS)
    assert (answer.status, answer.output) == ("waiting", "")
    answer = await shell.input("y", timeout=SECONDS)
    assert (answer.status, answer.output) == ("waiting", "got y\npassword: ")
    answer = await shell.input("secret\n", timeout=SECONDS)
    assert (answer.status, answer.output) == ("finished", "\n6\n")
    answer = await shell.run("cat", timeout=SECONDS)
    assert answer.status == "waiting"
    answer = await shell.input("line\n", expect="line\n", timeout=SECONDS)
    assert answer.status == "matched"
    answer = await shell.input("\x04", timeout=SECONDS)
    assert (answer.status, answer.exit_code) == ("finished", 0)
    # What a program did not read is no command, and no input of the next one.
    answer = await shell.run("read -n1 x; echo $x", timeout=SECONDS)
    answer = await shell.input("1touch /tmp/typed\n", timeout=SECONDS)
    assert answer.status == "finished"
    answer = await shell.run("ls /tmp/typed 2>/dev/null; read rest; echo [$rest]", timeout=SECONDS)
    assert (answer.status, answer.output) == ("waiting", "")
    answer = await shell.input("new\n", timeout=SECONDS)
    assert (answer.status, answer.output) == ("finished", "[new]\n")


@pytest_asyncio.fixture(loop_scope="module")
async def sh(session: Session) -> AsyncIterator[Shell]:
    """A shell that finds no bash."""
    programs = "cat kill ls python3 readlink rm sh sleep stty touch wc yes"
    links = f"mkdir -p bin; for each in {programs}; do ln -sf $(command -v $each) bin/; done"
    assert (await session.exec(argv=["bash", "-c", links])).ok
    made = await session.shells.create("plain", env={"PATH": "/workspace/bin"})
    yield made
    if made.name in [each.name for each in await session.shells.list()]:
        await made.close()


async def test_an_image_without_bash(sh: Shell) -> None:
    """Its `sh` keeps the same promises."""
    assert (
        await said(sh, "echo ${BASH_VERSION:-none}; bash 2>/dev/null || echo $?") == "none\n127\n"
    )
    await said(sh, "cd /tmp; x='a b'; f() { echo \"<$x>\"; }; sleep 100 & job=$!")
    assert await said(sh, "pwd; f") == "/tmp\n<a b>\n"
    assert (await said(sh, "kill $job; wait $job; echo $?")).count("143\n") == 1
    answer = await sh.run("touch /tmp/ran\nif", timeout=SECONDS)
    assert (answer.status, answer.exit_code, answer.output) == ("syntax_error", 2, "")
    assert await said(sh, "ls /tmp/ran 2>/dev/null || echo usable") == "usable\n"
    answer = await sh.run("printf 'name? '; read name; echo \"hello $name\"", timeout=SECONDS)
    assert (answer.status, answer.output) == ("waiting", "name? ")
    answer = await sh.input("bob\n", timeout=SECONDS)
    assert (answer.status, answer.output) == ("finished", "hello bob\n")
    for command in ("sleep 1000; echo no", "while :; do :; done", "cat"):
        running = asyncio.create_task(sh.run(command, timeout=SECONDS))
        await becomes(sh, running=True)
        await sh.interrupt()
        answer = await running
        if answer.status == "waiting":
            answer = await sh.input("", timeout=SECONDS, expect="never shown")
        assert (answer.exit_code, answer.running) == (130, False)
    assert await said(sh, "echo $name") == "bob\n"
    assert "socket:" not in await said(sh, "ls -l /proc/self/fd")
    answer = await sh.run("exit 3", timeout=SECONDS)
    assert (answer.status, answer.exit_code, answer.ended) == ("ended", 3, "exited")

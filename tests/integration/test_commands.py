"""Commands in real sandboxes: their start, their environment, and their results."""

import asyncio
import secrets
import signal

import pytest

from orchestrator.ground.errors import (
    BusyError,
    ConflictError,
    NotFoundError,
    PermissionDeniedError,
    ValidationError,
)
from tests.conftest import BoxFactory
from tests.support.box import Box

pytestmark = pytest.mark.asyncio(loop_scope="module")


# What the kernel lets them do

# Calls of the kernel that change nothing; each prints its name if it is refused.
HARMLESS = r"""
import errno, os, resource, select, signal, socket, tempfile, time
file = tempfile.TemporaryFile()
number, own = file.fileno(), os.getpid()
for name, call in {
    "getsid": lambda: os.getsid(0), "getpgid": lambda: os.getpgid(own),
    "getpriority": lambda: os.getpriority(os.PRIO_PROCESS, 0),
    "scheduler": lambda: os.sched_getscheduler(0), "param": lambda: os.sched_getparam(0),
    "interval": lambda: os.sched_rr_get_interval(0), "affinity": lambda: os.sched_getaffinity(0),
    "most": lambda: os.sched_get_priority_max(os.SCHED_FIFO), "yield": os.sched_yield,
    "xattr": lambda: os.listxattr(number), "advise": lambda: os.posix_fadvise(number, 0, 0, 0),
    "allocate": lambda: os.posix_fallocate(number, 0, 4096), "lock": lambda: os.lockf(number, 3, 0),
    "copy": lambda: os.copy_file_range(number, number, 1, 0, 2048),
    "splice": lambda: os.splice(*os.pipe(), 0), "sync": lambda: os.fdatasync(number),
    "statvfs": lambda: os.statvfs("."), "eventfd": lambda: os.eventfd(0),
    "pidfd": lambda: signal.pidfd_send_signal(os.pidfd_open(own), 0), "epoll": select.epoll,
    "random": lambda: os.getrandom(1), "usage": lambda: resource.getrusage(resource.RUSAGE_SELF),
    "limit": lambda: resource.prlimit(own, resource.RLIMIT_CPU), "groups": os.getgroups,
    "timer": lambda: signal.setitimer(signal.ITIMER_REAL, 0), "clock": lambda: time.clock_getres(0),
    "pair": socket.socketpair, "wait": lambda: signal.sigtimedwait([signal.SIGUSR1], 0),
    "truncate": lambda: os.ftruncate(number, 0), "mask": lambda: signal.pthread_sigmask(0, []),
}.items():
    try:
        call()
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
            print(name, error)
"""


async def test_what_changes_nothing_is_permitted(high: Box) -> None:
    done = await high.run(argv=["python3", "-c", HARMLESS])
    assert (done.stdout, done.stderr, done.exit_code) == ("", "", 0)


# Results


@pytest.mark.parametrize("code", [0, 1, 7, 255])
async def test_an_exit_code_is_passed_on(high: Box, code: int) -> None:
    done = await high.bash(f"exit {code}")
    assert (done.exit_code, done.exit["signal"]) == (code, None)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGSEGV", "SIGPIPE"])
async def test_a_signal_is_128_and_its_number(high: Box, name: str) -> None:
    done = await high.bash(f"kill -{name.removeprefix('SIG')} $$")
    assert (done.exit_code, done.exit["signal"]) == (128 + signal.Signals[name], name)


async def test_a_command_line_needs_no_shell(low: Box) -> None:
    await low.write("a file", b"content")
    assert (await low.run("cat 'a file'")).stdout == "content"
    assert (await low.run(argv=["cat", "a file"])).stdout == "content"


async def test_streams_are_told_apart_and_kept_in_order(high: Box) -> None:
    command = await high.start(argv=["bash", "-c", "echo a; read x; echo b >&2"], stdin_open=True)
    await high.printed(command, "a\n")
    await high.feed(command, b"\n")
    done = await high.finish(command)
    assert (done.stdout, done.stderr) == ("a\n", "b\n")
    assert done.exit["output_bytes"] == 4
    assert [offset async for _, offset, _ in high.output(command)] == [0, 2]


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["no-such-command"], 127, "No such file or directory"),
        (["/workspace/missing"], 127, "No such file or directory"),
        (["/etc/hostname"], 126, "Permission denied"),
        (["/tmp"], 126, "Permission denied"),
    ],
)
async def test_what_cannot_be_run_says_why(
    high: Box, argv: list[str], code: int, said: str
) -> None:
    done = await high.run(argv=argv)
    assert done.exit_code == code
    assert said in done.stderr
    assert argv[0] in done.stderr


async def test_a_text_file_without_interpreter_is_not_run(high: Box) -> None:
    await high.write("not-a-program", b"echo no shell guesses here\n")
    await high.bash("chmod +x not-a-program")
    done = await high.run(argv=["./not-a-program"])
    assert (done.exit_code, done.stdout) == (126, "")


# Input


async def test_input_is_given_and_closed(low: Box) -> None:
    done = await low.run("cat", stdin="héllo\n")
    assert done.stdout == "héllo\n"


async def test_without_input_there_is_none(low: Box) -> None:
    assert (await low.run("cat")).stdout == ""


async def test_a_megabyte_of_input_arrives(low: Box) -> None:
    done = await low.run("wc -c", stdin="x" * 2**20)
    assert done.stdout.split() == [str(2**20)]


async def test_open_input_is_fed_and_closed(low: Box) -> None:
    command = await low.start("cat", stdin="one ", stdin_open=True)
    await low.printed(command, "one ")
    await low.feed(command, b"two ")
    await low.printed(command, "one two ")
    await low.feed(command, b"three", close=True)
    assert (await low.finish(command)).stdout == "one two three"
    with pytest.raises(NotFoundError):
        await low.feed(command, b"late")


async def test_closed_input_takes_no_more(high: Box) -> None:
    command = await high.start(argv=["bash", "-c", "cat; kill -STOP $$"], stdin_open=True)
    await high.feed(command, b"all", close=True)
    with pytest.raises(ConflictError):
        await high.feed(command, b"more")
    await high.cancel(command)


async def test_input_is_bytes(low: Box) -> None:
    done = await low.run("wc -c", stdin=bytes(range(256)) * 4)
    assert done.stdout.split() == ["1024"]


async def test_input_that_is_not_read_waits(high: Box) -> None:
    script = (
        "import signal, sys; signal.pthread_sigmask(0, {signal.SIGUSR1})\n"
        "print('ready', flush=True); signal.sigwait({signal.SIGUSR1})\n"
        "print(len(sys.stdin.buffer.read()), flush=True)"
    )
    command = await high.start(argv=["python3", "-c", script], stdin_open=True)
    await high.printed(command, "ready")
    # More than the agent holds for a command, and more than its pipe holds.
    await high.feed(command, bytes(2**20))
    last = asyncio.create_task(high.feed(command, bytes(2**20), close=True))
    # Other commands are served meanwhile.
    assert (await high.run(argv=["true"])).exit_code == 0
    assert not last.done()
    await high.signal(command, signal.SIGUSR1)
    await last
    assert (await high.finish(command)).stdout == f"ready\n{2**21}\n"


async def test_input_to_a_command_that_closed_it_does_no_harm(high: Box) -> None:
    script = "exec <&-; echo closed; kill -STOP $$"
    command = await high.start(argv=["bash", "-c", script], stdin_open=True)
    await high.printed(command, "closed")
    await high.feed(command, b"nobody reads this")
    with pytest.raises(ConflictError):
        await high.feed(command, b"nor this")
    await high.cancel(command)


async def test_a_command_has_its_streams_and_no_other_descriptor(high: Box) -> None:
    script = "import json, os; print(json.dumps(os.listdir('/proc/self/fd')))"
    for _ in range(3):
        # 3 belongs to the listing itself.
        assert (await high.python(script, stdin="x")).value == ["0", "1", "2", "3"]


# Directory, user and environment


async def test_a_command_starts_in_the_workspace(low: Box) -> None:
    assert (await low.run("pwd")).stdout == "/workspace\n"


@pytest.mark.parametrize("cwd", ["sub/dir", "/workspace/sub/dir", "sub/./dir/../dir"])
async def test_the_directory_may_be_relative_or_absolute(low: Box, cwd: str) -> None:
    await low.mkdir("sub/dir")
    assert (await low.run("pwd", cwd=cwd)).stdout == "/workspace/sub/dir\n"


async def test_a_missing_directory_is_said(low: Box) -> None:
    done = await low.run("pwd", cwd="nowhere")
    assert done.exit_code == 127
    assert "cannot enter directory 'nowhere': No such file or directory" in done.stderr


@pytest.mark.parametrize("cwd", ["..", "/", "/etc", "sub/../../etc", "/workspace/../root"])
async def test_a_directory_outside_is_refused(low: Box, cwd: str) -> None:
    with pytest.raises(ValidationError, match="cwd"):
        await low.run("pwd", cwd=cwd)


@pytest.mark.parametrize("target", ["/etc", "../../etc", "/proc/self/root/etc"])
async def test_a_link_out_is_no_directory_to_start_in(high: Box, target: str) -> None:
    await high.bash(f"ln -sfn {target} out")
    done = await high.run(argv=["ls"], cwd="out")
    assert done.exit_code == 126
    assert done.stdout == ""
    assert "cannot enter directory 'out'" in done.stderr


async def test_a_command_has_a_name_and_a_home(medium: Box, high: Box) -> None:
    assert (await medium.run("whoami")).stdout == "sandbox\n"
    source = "import getpass, os, pwd; print(getpass.getuser(), pwd.getpwuid(os.getuid()).pw_name)"
    # Without the variables, getuser() has to look up the name.
    done = await high.bash(f"env -u LOGNAME -u USER python3 -c '{source}'; echo $HOME; umask")
    assert done.stdout.splitlines() == ["sandbox sandbox", "/workspace", "0022"]


async def test_the_environment_is_built_from_scratch(medium: Box) -> None:
    done = await medium.run("env", env={"LANG": "de_DE.UTF-8", "LC_TIME": "C"})
    proxy = "http://127.0.0.1:3128"
    local = "localhost,127.0.0.1,127.0.0.0/8,0.0.0.0,::1,sandbox"
    assert sorted(done.stdout.splitlines()) == [
        "HOME=/nonexistent",
        f"HTTPS_PROXY={proxy}",
        f"HTTP_PROXY={proxy}",
        "LANG=de_DE.UTF-8",
        "LC_TIME=C",
        "LOGNAME=sandbox",
        "NODE_USE_ENV_PROXY=1",
        f"NO_PROXY={local}",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "USER=sandbox",
        f"http_proxy={proxy}",
        f"https_proxy={proxy}",
        f"no_proxy={local}",
    ]


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "HOME", "PYTHONPATH", "CURL_HOME"])
async def test_variables_that_change_what_runs_are_refused(low: Box, name: str) -> None:
    with pytest.raises(PermissionDeniedError) as refused:
        await low.run("ls", env={name: "/workspace"})
    assert refused.value.fields["rule"] == "environment-allowlist"


async def test_at_high_any_variable_may_be_set(high: Box) -> None:
    await high.mkdir("bin")
    await high.write("bin/hello", b"#!/bin/sh\necho hello $GREETED\n")
    await high.bash("chmod +x bin/hello")
    env = {"PATH": "/workspace/bin:/usr/bin:/bin", "GREETED": "you"}
    assert (await high.run("hello", env=env)).stdout == "hello you\n"


async def test_limits_of_a_process(high: Box) -> None:
    source = (
        "import json, resource as r; print(json.dumps([r.getrlimit(n) for n in "
        "(r.RLIMIT_CORE, r.RLIMIT_NPROC, r.RLIMIT_NOFILE)]))"
    )
    core, processes, files = (await high.python(source)).value
    # A limit of 1 allows no core file, and also keeps the kernel from starting the host's handler.
    assert core == [1, 1]
    assert files == [4096, 4096]
    assert processes[0] == processes[1] < high.session.limits.pids


# Commands that the agent answers itself


async def test_which_names_what_is_allowed(medium: Box) -> None:
    assert (await medium.run("which ls curl")).stdout == "/usr/bin/ls\n/usr/bin/curl\n"
    found = await medium.run("which ls python3")
    assert (found.exit_code, found.stdout) == (1, "/usr/bin/ls\n")


async def test_neofetch_tells_of_the_sandbox(medium: Box) -> None:
    said = (await medium.run("neofetch")).stdout
    assert "level:  medium" in said
    assert "memory: 1024 MiB" in said


# Time-outs, signals, cancelling


async def test_a_timeout_ends_a_command(low: Box) -> None:
    await low.write("a.log", b"x")
    done = await low.run("tail -f a.log", timeout=1)
    assert done.exit["timed_out"]
    assert (done.exit["reason"], done.exit["signal"], done.exit_code) == ("timeout", "SIGTERM", 143)
    assert done.stdout == "x"


async def test_a_timeout_must_be_within_the_level(low: Box) -> None:
    for seconds in (0, -1, low.session.level.timeout_max + 1):
        with pytest.raises(ValidationError, match="timeout must be more than 0 and at most 120"):
            await low.run("ls", timeout=seconds)


async def test_a_signal_reaches_the_process_group(high: Box) -> None:
    script = "trap 'echo caught; exit 5' USR1; echo ready; sleep 1000 & wait"
    command = await high.start(argv=["bash", "-c", script], background=True)
    await high.printed(command, "ready")
    await high.signal(command, signal.SIGUSR1)
    done = await high.finish(command)
    assert (done.exit_code, done.stdout) == (5, "ready\ncaught\n")
    with pytest.raises(NotFoundError):
        await high.signal(command, signal.SIGTERM)


async def test_a_client_that_goes_away_ends_its_command(high: Box) -> None:
    command = await high.start(argv=["sleep", "1000"])
    done = await high.cancel(command)
    assert (done.exit["reason"], done.exit["signal"]) == ("client_gone", "SIGTERM")
    assert not done.exit["timed_out"]
    # A second call does nothing.
    assert (await high.cancel(command)).exit == done.exit


async def test_interrupt_ends_every_command(high: Box) -> None:
    commands = [await high.start(argv=["sleep", "1000"], background=True) for _ in range(3)]
    await high.plane.sessions.interrupt(high.session)
    for command in commands:
        assert (await high.finish(command)).exit["reason"] == "interrupted"
    assert (await high.run(argv=["true"])).exit_code == 0


# Number and identity of commands


async def test_sixteen_commands_run_at_once_and_no_more(high: Box) -> None:
    commands = await asyncio.gather(
        *(high.start(argv=["sleep", "1000"], background=True) for _ in range(16))
    )
    with pytest.raises(BusyError):
        await high.start(argv=["true"])
    with pytest.raises(BusyError):
        await exec_directly(high, secrets.token_hex(8), ["true"])
    await asyncio.gather(*(high.cancel(command) for command in commands))
    assert (await high.run(argv=["true"])).exit_code == 0


async def exec_directly(box: Box, command_id: str, argv: list[str]) -> None:
    await box.ask(
        "exec",
        command_id=command_id,
        argv=argv,
        cwd="/workspace",
        env={},
        stdin=None,
        stdin_open=False,
        timeout_ms=None,
        background=False,
    )


async def test_the_agent_runs_no_command_twice(high: Box) -> None:
    done = await high.bash("echo once >> twice.log")
    with pytest.raises(ConflictError, match="started before"):
        await exec_directly(high, done.command.id, ["bash", "-c", "echo twice >> twice.log"])
    assert await high.read("twice.log") == b"once\n"


async def test_the_agent_holds_the_rules_as_well(low: Box) -> None:
    for argv, rule in [
        (["curl", "-V"], "command-allowlist"),
        (["find", ".", "-delete"], "option-not-allowed"),
        (["cat", "/etc/passwd"], "path-outside-workspace"),
    ]:
        with pytest.raises(PermissionDeniedError) as refused:
            await exec_directly(low, secrets.token_hex(8), argv)
        assert refused.value.fields["rule"] == rule


async def test_no_listed_command_launches_another(medium: Box) -> None:
    await medium.write("script", b"#!/bin/sh\necho ran\n")
    for command in ("env ./script", "find . -exec ./script", "./script", "env -S ./script"):
        with pytest.raises(PermissionDeniedError):
            await medium.run(command)


async def test_a_refusal_by_the_agent_is_recorded(new_box: BoxFactory) -> None:
    box = await new_box("low")
    (box.workspace / "out").symlink_to("/etc/passwd")
    with pytest.raises(PermissionDeniedError) as refused:
        await box.run("cat out")
    assert refused.value.fields["rule"] == "path-outside-workspace"
    (event,) = await box.events("command.exit")
    assert (event["decision"], event["rule"]) == ("deny", "path-outside-workspace")
    assert event["agent"] is not None


async def test_every_command_is_on_record_before_and_after(new_box: BoxFactory) -> None:
    box = await new_box("low")
    await asyncio.gather(*(box.run("ls") for _ in range(10)))
    with pytest.raises(PermissionDeniedError):
        await box.run("python3 -V")
    events = await box.events()
    started = [e["args"]["command_id"] for e in events if e["operation"] == "command.start"]
    ended = [e["args"]["command_id"] for e in events if e["operation"] == "command.exit"]
    assert len(started) == 11
    assert sorted(ended) == sorted(started[:-1])
    for command_id in ended:
        mine = [e["operation"] for e in events if e["args"].get("command_id") == command_id]
        assert mine == ["command.start", "command.exit"]
    numbers = [e["agent"]["seq"] for e in events if e["agent"]]
    assert numbers == list(range(1, 11))
    assert len({e["agent"]["boot_id"] for e in events if e["agent"]}) == 1
    assert (events[-1]["decision"], events[-1]["rule"]) == ("deny", "command-allowlist")

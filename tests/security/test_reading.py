"""Reading files of the image, of another session, or of the host."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.ground.errors import PermissionDeniedError
from tests.support.arsenal import held_in
from tests.support.attack import Attacks, numbers
from tests.support.attempts import attempt, attempts
from tests.support.box import Box

pytestmark = pytest.mark.asyncio(loop_scope="module")

ROUNDS = 500


@attempts(
    {
        "direct": "a secret of the image, by its path",
        "slashes": "… with `//` and `/./` in the path",
        "dots": "… with `..` in the path",
        "relative": "… relative to the workspace",
        "/proc/self/root": "… through /proc/self/root",
        "/proc/self/cwd": "… through /proc/self/cwd",
        "/proc/thread-self/root": "… through /proc/thread-self/root",
        "parent's root": "… through the parent's /proc/PID/root",
        "symbolic link": "… through a symbolic link in the workspace",
        "chain of links": "… through links to directories on the way",
        "O_PATH reopened": "… by an O_PATH descriptor, opened once more",
        "openat": "… by a descriptor of its directory",
        "change of directory": "… after a change into its directory",
        "hard link": "… through a hard link in the workspace",
        "hard link of a descriptor": "… through a hard link of a descriptor",
        "rename": "… moved into the workspace",
        "clone": "… in a process that shares its descriptors",
        "listing": "the names in its directory",
        "cat": "… by `cat`, without the rules about its words",
        "head": "… by `head` through /proc",
        "grep": "… by `grep -r`",
        "grep -f": "… by `grep -f`",
        "cp": "… by `cp` into the workspace",
        "cp -l": "… by `cp -l` into the workspace",
        "curl file:": "… by `curl` with a `file:` URL",
        "curl -K": "… by `curl -K`, in an error message",
        "date -f": "… by `date -f`, in an error message",
        "wc --files0-from": "… by `wc --files0-from`, in an error message",
    },
    layer="Landlock",
    levels="low medium",
)
async def test_secret_of_the_image(attacks: Attacks, level: str, name: str) -> None:
    (await attacks.report(level, "reads")).stopped(name)


@attempts(
    {
        "openat2 of a descriptor": "… by openat2, whose flags a filter can't see",
        "openat2 in root": "… by openat2 in a root of its own",
    },
    layer="seccomp",
    levels="low medium",
)
async def test_secret_of_the_image_by_openat2(attacks: Attacks, level: str, name: str) -> None:
    (await attacks.report(level, "reads")).stopped(name)


@attempts(
    {
        "first process's root": "through the agent's /proc/1/root",
        "inherited descriptors": "a descriptor that the agent or the guard left open",
    },
    layer="uid, Landlock",
)
async def test_through_the_agent(attacks: Attacks, level: str, name: str) -> None:
    (await attacks.report(level, "reads")).stopped(name)


async def test_the_attempts_work_where_they_may(attacks: Attacks) -> None:
    """High may read the whole image, so only the filter and the mounts stop attempts."""
    report = await attacks.report("high", "reads")
    assert report.refused.keys() == {
        "first process's root",
        "inherited descriptors",
        "openat2 of a descriptor",
        "openat2 in root",
        "hard link",
        "hard link of a descriptor",
        "rename",
        "cp -l",
    }


# Of other sessions, and of the host


@pytest.fixture(scope="module")
def host_secret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file on the host that every user there may read; its content is its own name."""
    directory = tmp_path_factory.mktemp("host")
    path = directory / f"canary-of-the-host-{secrets.token_hex(8)}"
    path.write_text(path.name)
    for parent in (path, directory):
        parent.chmod(0o755)
    yield path
    assert path.read_text() == path.name


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def neighbour(attacks: Attacks) -> AsyncIterator[tuple[Box, str]]:
    """Another session, with a secret in its workspace, in /tmp and in a process."""
    secret = f"canary-of-a-session-{secrets.token_hex(8)}"
    box = await Box.create(attacks.plane, "high")
    await box.write(secret, secret.encode())
    await box.bash(f"chmod -R 777 . ; echo {secret} > /tmp/{secret}; echo {secret} > /dev/shm/x")
    holder = await box.start(
        argv=["bash", "-c", f"echo ready; exec -a {secret} sleep 1000"],
        env={"SECRET": secret},
        background=True,
    )
    await box.printed(holder, "ready")
    yield box, secret
    assert await box.read(secret) == secret.encode()
    assert holder.id in (await box.ask("stats"))["running"]


OUTSIDE = {
    "direct": "by its path",
    "/proc/self/root": "through /proc/self/root",
    "first process's root": "through /proc/1/root",
    "dots": "by `..` beyond the root",
    "symbolic link": "through a symbolic link",
}


@attempt("a file of the host: by its path, links, `..`, /proc", layer="mounts")
async def test_file_of_the_host(attacks: Attacks, host_secret: Path, level: str) -> None:
    done = await attacks.run(level, "reads", str(host_secret))
    await assert_nothing_read(attacks, level, done.stdout, host_secret.name)


@attempt("a file of another session, by its path on the host", layer="mounts, uid")
async def test_file_of_another_session(
    attacks: Attacks, neighbour: tuple[Box, str], level: str
) -> None:
    other, secret = neighbour
    for path in (other.workspace / secret, other.workspace.resolve() / secret):
        done = await attacks.run(level, "reads", str(path))
        await assert_nothing_read(attacks, level, done.stdout, secret)


@attempt("another session's processes, /tmp and shared memory", layer="namespaces, mounts")
async def test_traces_of_another_session(
    attacks: Attacks, neighbour: tuple[Box, str], level: str
) -> None:
    _, secret = neighbour
    box = await attacks.box(level)
    for path in (f"/tmp/{secret}", f"/workspace/{secret}", "/dev/shm/x"):
        done = await attacks.run(level, "reads", path)
        await assert_nothing_read(attacks, level, done.stdout, secret)
    if level == "high":
        seen = await box.bash("cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ; ls -R /tmp /dev")
        assert secret not in seen.stdout.replace("\0", " ")


async def assert_nothing_read(attacks: Attacks, level: str, said: str, secret: str) -> None:
    """Asserts that no attempt worked, and that no byte of the secret reached the session."""
    box = await attacks.box(level)
    assert said.count("\n") >= len(OUTSIDE)
    assert "+" not in {line[:1] for line in said.splitlines()}
    assert secret not in said
    # Only the target of the attempt's own link contains the name.
    assert held_in(box.workspace, secret) == []


# Races: the target of a path changes continuously


@attempts(
    {
        "link": "a symbolic link that flips between inside and the secret",
        "directory": "a directory on the way that flips",
        "rename": "a file that is swapped for a link to the secret",
        "memory": "a path that flips in memory while the kernel reads it",
    },
    layer="Landlock",
    levels="low medium",
)
async def test_race(attacks: Attacks, level: str, name: str) -> None:
    done = await attacks.run(level, "races", "flip", name, str(ROUNDS * 4))
    counted = numbers(done.stdout)
    assert counted["rounds"] >= ROUNDS
    assert counted["inside"] > 0
    assert counted["refused"] > 0
    assert counted["leaked"] == 0


@attempt(
    "a working directory that is moved away under relative paths",
    layer="Landlock",
    levels="low medium",
)
async def test_moved_directory(attacks: Attacks, level: str) -> None:
    hello = (await attacks.box(level)).session.check_open().link.hello
    if hello is None or not hello.kernel.moves:
        pytest.skip("this kernel lets no command move anything to another directory")
    done = await attacks.run(level, "races", "move", str(ROUNDS * 4))
    counted = numbers(done.stdout)
    assert counted["rounds"] >= ROUNDS
    assert counted["leaked"] == 0


@attempts(
    {
        "link": "a link that flips between the check of a command's words and its start",
        "directory": "… a directory",
        "rename": "… a file and a link",
    },
    layer="words, then Landlock",
    levels="low medium",
)
async def test_race_of_a_checked_path(attacks: Attacks, level: str, name: str) -> None:
    """A session's own commands race against the guard's check of their operands."""
    box = await attacks.box(level)
    (box.workspace / "stop").unlink(missing_ok=True)
    flipper = await box.start(argv=["attack-races", "hold", name], background=True, timeout=120)
    await box.printed(flipper, "flipping")
    path = "race/name/canary" if name == "directory" else "race/name"
    said = set()

    async def read_in_turn() -> None:
        for _ in range(ROUNDS // 4):
            try:
                said.add((await box.run(argv=["cat", path])).stdout)
            except PermissionDeniedError:
                said.add("refused")

    await asyncio.gather(*(read_in_turn() for _ in range(4)))
    await box.write("stop", b"")
    done = await box.finish(flipper)
    assert said <= {"inside", "", "refused"}
    assert {"inside", "refused"} <= said
    await attacks.assert_unharmed(box, done)

"""Changing the image, the agent, or the kernel's settings."""

import pytest

from tests.support.attack import Attacks
from tests.support.attempts import attempts
from tests.support.box import mount_options

pytestmark = pytest.mark.asyncio(loop_scope="module")


@attempts(
    {
        "overwrite": "a file of the image that anybody may write, overwritten",
        "append": "… appended to",
        "truncate at open": "… truncated when it is opened",
        "truncate": "… truncated by its path",
        "new file": "a new file in a directory that anybody may write",
        "unnamed file": "… a file without a name (O_TMPFILE)",
        "new directory": "… a directory",
        "new link": "… a symbolic link",
        "new pipe": "… a named pipe",
        "remove": "the file removed",
        "rename from there": "the file moved into the workspace",
        "rename to there": "a file moved there",
        "through a link": "the file written through a link in the workspace",
        "through /proc": "… through /proc/self/root",
        "O_PATH reopened": "… by an O_PATH descriptor, opened once more",
        "chmod": "its mode changed",
        "utime": "its times changed",
        "setxattr": "an attribute set on it",
        "file in /": "a new file in /",
    },
    layer="read-only root, Landlock",
)
async def test_file_of_the_image(attacks: Attacks, level: str, name: str) -> None:
    (await attacks.report(level, "writes")).stopped(name)


@attempts(
    {
        "agent's program": "the agent's own program changed",
        "/etc/passwd": "/etc/passwd changed",
        "run directory": "a file made where the agent's socket is",
        "file in /dev": "a new file in /dev",
        "new device": "a block device made in /tmp",
        "agent's OOM score": "the agent made the first to go when memory runs out",
        "agent's memory": "the agent's memory opened for writing",
    },
    layer="read-only root, uid",
)
async def test_file_of_the_sandbox(attacks: Attacks, level: str, name: str) -> None:
    (await attacks.report(level, "writes")).stopped(name)


@attempts(
    {
        "core_pattern": "core_pattern, which runs a program of the host",
        "sysctl": "a kernel parameter",
        "sysrq": "sysrq-trigger",
        "control group": "the sandbox's own memory limit",
        "release agent": "a control group's release_agent, a program of the host",
        "uevent helper": "uevent_helper, a program of the host",
        "uid map": "a mapping of uids",
    },
    layer="engine's mounts, Landlock",
)
async def test_setting_of_the_kernel(attacks: Attacks, level: str, name: str) -> None:
    (await attacks.report(level, "writes")).stopped(name)


@attempts(
    {
        "OOM score": "a command made the last to go when memory runs out",
        "file in /dev/shm": "a file in shared memory",
        "file in /dev/mqueue": "a file among the message queues",
    },
    layer="Landlock, no IPC mounts",
    levels="low medium",
)
async def test_place_beside_the_workspace(attacks: Attacks, level: str, name: str) -> None:
    (await attacks.report(level, "writes")).stopped(name)
    points = mount_options((await attacks.box(level)).agent())
    assert "/dev/shm" not in points
    # Engines leave the mount of message queues, but read-only.
    assert "ro" in points.get("/dev/mqueue", {"ro"})

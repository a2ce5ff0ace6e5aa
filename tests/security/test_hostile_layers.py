"""What a session leaves in its writable layer against those who begin with it."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import ConflictError
from tests.support.attempts import attempt
from tests.support.box import TESTER, Box
from tests.support.leaks import left_behind
from tests.support.plane import opened
from tests.support.root_levels import LEVEL, write_root_level

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    sandbox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    directory = tmp_path_factory.mktemp("levels")
    write_root_level(directory, f"root_bytes = {64 * 1024 * 1024}")
    async with opened(image=sandbox_image, levels_dir=directory) as plane:
        yield plane


# And why it is refused. The engine's runtime mounts at these paths and reads these files before a
# sandbox begins; the agent's loader reads the last one.
HOSTILE = {
    "mkdir -p /home/a/b && mv /home/a /home/c && ln -s /opt /home/a": "/home/a is no directory",
    "ln -s /opt/paddock /home/a": "/home/a is no directory",
    "mkdir /home/a && touch /home/a/b": "/home/a/b is no directory",
    "rm /etc/passwd && mkfifo /etc/passwd": "/etc/passwd is no file",
    "rm /etc/group && ln -s /dev/zero /etc/group": "/etc/group is no file",
    "head -c 2M /dev/zero >> /etc/passwd": "/etc/passwd has more than",
    "echo /usr/own.so > /etc/ld.so.preload": "it has /etc/ld.so.preload",
    "ln -s /nowhere /etc/ld.so.preload": "it has /etc/ld.so.preload",
}


@attempt(
    "mounts of those who begin with one's layer: moved",
    layer="examination of the layer",
    levels="high",
)
@attempt(
    "the start of those who begin with one's layer: delayed, or one's code in their agent",
    layer="examination of the layer",
    levels="high",
)
@pytest.mark.parametrize("line", HOSTILE)
async def test_a_hostile_layer_is_refused(plane: ControlPlane, line: str) -> None:
    source = await Box.create(plane, LEVEL)
    done = await source.bash(line)
    assert done.exit_code == 0, done.stderr
    await plane.named_snapshots.take(TESTER, source.session, "hostile", layer=True)
    before = left_behind(plane.settings.state_dir)
    with pytest.raises(ConflictError, match=f"can't be used: {HOSTILE[line]}"):
        await Box.create(plane, LEVEL, from_snapshot="hostile", workspace_path="/home/a/b")
    assert left_behind(plane.settings.state_dir) == before
    await plane.named_snapshots.remove(TESTER, "tester", "hostile")
    await source.close()


# A library that the agent's own would load, a clock that its C library reads, and a profile.
PLANTED = """
set -e
printf 'openssl_conf = a\\n[a]\\nproviders = b\\n[b]\\nown = c\\n[c]\\nmodule = /usr/own.so\\n' \
    > /etc/ssl/openssl.cnf
printf 'activate = 1\\n' >> /etc/ssl/openssl.cnf
head -c 100000 /dev/urandom > /etc/localtime
rm -rf /usr/lib/locale /usr/lib/*/gconv /etc/nsswitch.conf
echo 'root:x:0:0::/nowhere:/bin/none' > /etc/passwd
printf '\\0\\377' > /etc/ld.so.cache
chmod 4777 /etc /usr /var
"""


async def test_what_is_left_beside_that_has_no_part_in_the_start(plane: ControlPlane) -> None:
    source = await Box.create(plane, LEVEL)
    done = await source.bash(PLANTED)
    assert done.exit_code == 0, done.stderr
    await plane.named_snapshots.take(TESTER, source.session, "planted", layer=True)
    box = await Box.create(plane, LEVEL, from_snapshot="planted")
    assert (await box.run("/bin/echo well")).stdout == "well\n"
    opened_files = {each.path for each in box.agent().memory_maps()}
    assert all(each.startswith(("/opt/paddock/", "[")) for each in opened_files), opened_files
    assert box.agent().environ()["HOME"] == "/"
    await box.close()
    await source.close()
    await plane.named_snapshots.remove(TESTER, "tester", "planted")

"""Sessions in images that have nothing of Paddock's: no agent, no Python, perhaps no C library."""

import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import docker
import pytest
import pytest_asyncio

from images.foreign import check
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import ValidationError
from orchestrator.sandbox.images.checked_images import CheckedImages
from orchestrator.settings.settings import Settings
from tests.support.box import Box
from tests.support.foreign_images import Root, busybox, debian_without_python, imported, musl
from tests.support.limits import PROGRAM_SECONDS
from tests.support.plane import clear, running, state

pytestmark = pytest.mark.asyncio(loop_scope="module")

LEVELS = ("low", "medium", "high")
# All that a container would take from the image.
CHANGES = (
    'ENTRYPOINT ["/bin/echo", "entry point"]',
    'CMD ["command"]',
    "USER 1234:1234",
    "WORKDIR /somewhere",
    "ENV PATH=/opt/tools:/bin LD_PRELOAD=/bin/none.so GREETING=hello",
    "ENV HOME=/root http_proxy=http://proxy.invalid LANG=C",
    'VOLUME ["/data", "/data/below", "/workspace", "/tmp"]',
    "HEALTHCHECK --interval=1s CMD /bin/false",
)


class Foreign(NamedTuple):
    """A control plane that may use each of these images, by their kind."""

    plane: ControlPlane
    names: dict[str, str]

    async def box(self, kind: str, level: str) -> Box:
        return await Box.create(self.plane, level, image=self.names[kind])


@pytest.fixture(scope="module")
def images(
    sandbox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    every = busybox()
    every.file("opt/tools/greet", b"#!/bin/sh\necho greeted $GREETING\n")
    every.file("data/file", b"of the image\n", 0o644)
    every.file("bin/set", b"#!/bin/sh\nid -u\n", 0o4755)
    with ExitStack() as stack:
        yield {
            "busybox": stack.enter_context(imported(busybox().data())),
            "debian": stack.enter_context(imported(debian_without_python(sandbox_image))),
            "musl": stack.enter_context(imported(musl(tmp_path_factory.mktemp("musl")).data())),
            "every": stack.enter_context(imported(every.data(), CHANGES)),
        }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def foreign(sandbox_image: str, images: dict[str, str]) -> AsyncIterator[Foreign]:
    """The images are checked as `paddock images add` does it."""
    with state(image=sandbox_image, images=tuple(images.values())) as settings:
        async with running(settings) as plane:
            for name in images.values():
                await check(name, settings, plane.levels.values())
            yield Foreign(plane, images)
            await clear(plane)


async def test_a_scratch_image_runs_its_programs(foreign: Foreign) -> None:
    box = await foreign.box("busybox", "high")
    said = await box.run("echo hello")
    assert (said.exit_code, said.stdout) == (0, "hello\n")
    said = await box.run(argv=["sh", "-c", "echo here > file; cat file; ls /usr"])
    assert (said.exit_code, said.stdout) == (1, "here\n")
    assert await box.read("file") == b"here\n"


async def test_a_program_that_the_image_lacks_is_said_to_be_missing(foreign: Foreign) -> None:
    box = await foreign.box("busybox", "high")
    said = await box.run("python3 --version")
    assert said.exit_code == 127
    assert "python3" in said.stderr


@pytest.mark.parametrize("level", LEVELS)
async def test_debian_without_python_works(foreign: Foreign, level: str) -> None:
    box = await foreign.box("debian", level)
    await box.write("file", b"content\n")
    assert (await box.run("cat file")).stdout == "content\n"
    assert (await box.run("mkdir new")).exit_code == 0
    assert sorted(await box.paths()) == ["file", "new"]
    packed, _ = await box.pack()
    assert b"content" in packed
    assert (await box.event("command.start"))["decision"] == "allow"


async def test_a_line_and_a_shell_of_debian(foreign: Foreign) -> None:
    box = await foreign.box("debian", "high")
    assert (await box.run(shell="echo a b | wc -w")).stdout.strip() == "2"
    said = await box.run("python3 --version")
    assert said.exit_code == 127


async def test_musl_programs_start_by_their_own_loader(foreign: Foreign) -> None:
    box = await foreign.box("musl", "high")
    assert (await box.run("hello")).stdout == "from musl\n"


async def test_an_image_decides_nothing_about_its_agent(foreign: Foreign) -> None:
    """Entry point, user, directory, volumes, health check and variables are the image's own."""
    box = await foreign.box("every", "high")
    said = await box.run(argv=["sh", "-c", "cat /proc/1/cmdline /proc/1/status; pwd"])
    assert "entry point" not in said.stdout
    assert "\nUid:\t0\t0\t0\t0\n" in said.stdout
    assert said.stdout.endswith("/workspace\n")
    # Its volume would be writable and without a limit.
    for place in ("/data", "/data/below"):
        assert "of the image" not in (await box.run(argv=["sh", "-c", f"cat {place}/*"])).stdout
        assert (await box.run(argv=["sh", "-c", f"echo x > {place}/x"])).exit_code != 0
    # The agent has none of its variables, and its health is not asked for.
    client = docker.APIClient(version="auto")
    try:
        raw = client.inspect_container(box.container_id)
    finally:
        client.close()
    assert "Health" not in raw["State"]
    mounted = (await box.run("cat /proc/mounts")).stdout.splitlines()
    kinds = {line.split()[1]: line.split()[2] for line in mounted}
    assert kinds["/tmp"] == kinds["/data"] == kinds["/data/below"] == "tmpfs"
    environment = box.agent().environ().keys()
    assert not {"LD_PRELOAD", "GREETING", "http_proxy"} & environment
    # No library, and no other file of the image, is in its memory.
    maps = Path(f"/proc/{box.agent().pid}/maps").read_text().splitlines()
    files = {line.split(maxsplit=5)[5] for line in maps if "/" in line}
    assert len(files) > 5
    assert all(file.startswith("/opt/paddock/") for file in files), files
    # A setuid bit has no effect.
    assert (await box.run("set")).stdout.strip() == str(box.uid)


async def test_the_environment_of_an_image_is_the_default_at_high(foreign: Foreign) -> None:
    box = await foreign.box("every", "high")
    assert (await box.run("greet")).stdout == "greeted hello\n"
    said = await box.run("/bin/env", env={"GREETING": "bye"})
    variables = dict(line.split("=", 1) for line in said.stdout.splitlines())
    assert variables["HOME"] == "/workspace"
    assert "http_proxy" not in variables
    assert variables["GREETING"] == "bye"


async def test_a_multi_call_shell_can_not_have_a_level_that_lists_programs(
    foreign: Foreign,
) -> None:
    for level in ("low", "medium"):
        with pytest.raises(ValidationError, match="and its shell are one program"):
            await foreign.box("busybox", level)


def image_id(client: docker.APIClient, name: str) -> str:
    return str(client.inspect_image(name)["Id"])  # type: ignore[no-untyped-call]


async def test_a_name_that_moves_is_refused_until_it_is_added_again(
    foreign: Foreign, images: dict[str, str]
) -> None:
    root = busybox()
    root.file("new", b"")
    client = docker.APIClient(version="auto")
    name, _, _ = images["musl"].partition(":")
    before = image_id(client, images["musl"])
    try:
        client.import_image_from_data(root.data(), repository=name)
        with pytest.raises(ValidationError, match="is another one than was checked"):
            await foreign.box("musl", "high")
    finally:
        other = image_id(client, images["musl"])
        client.tag(before, name)
        client.remove_image(other)
        client.close()
    box = await foreign.box("musl", "high")
    assert (await box.run("echo again")).stdout == "again\n"


async def refused(name: str, settings: Settings, reason: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(reason)):
        await check(name, settings, [])
    assert CheckedImages(settings.state_dir).named(name) == []


# The engine itself replaces a link at /etc or /dev by a directory.
HOSTILE = {
    "/opt": "/workspace",
    "/workspace": "/etc",
    "/tmp": "/",
    "/run": "/workspace",
    "/run/paddock": "/",
    "/etc/passwd": "/workspace/passwd",
}


@pytest.mark.parametrize("path", HOSTILE)
async def test_links_where_a_sandbox_has_mounts_are_refused(
    sandbox_image: str, tmp_path: Path, path: str
) -> None:
    root = Root()
    root.file("bin/busybox", b"")
    root.link(path.lstrip("/"), HOSTILE[path])
    settings = Settings(state_dir=tmp_path, image=sandbox_image)
    with imported(root.data()) as name:
        await refused(name, settings, f": {path} is no ")
        assert CheckedImages(settings.state_dir).named(name) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("LABEL paddock.session=other", "labels"),
        ("VOLUME /etc", "the volume /etc"),
        ("VOLUME /opt/paddock", "the volume /opt/paddock"),
        ("VOLUME /run", "the volume /run"),
    ],
)
async def test_images_that_would_change_the_agent_are_refused(
    sandbox_image: str, tmp_path: Path, change: str, reason: str
) -> None:
    settings = Settings(state_dir=tmp_path, image=sandbox_image)
    with imported(busybox().data(), [change]) as name:
        await refused(name, settings, reason)


async def test_a_library_for_every_process_is_refused(sandbox_image: str, tmp_path: Path) -> None:
    root = busybox()
    root.file("etc/ld.so.preload", b"/bin/evil.so\n", 0o644)
    settings = Settings(state_dir=tmp_path, image=sandbox_image)
    with imported(root.data()) as name:
        await refused(name, settings, "it has /etc/ld.so.preload")


# Ends the process that loads it, before it does anything.
LIBRARY = "__attribute__((constructor)) void begin(void) { __builtin_trap(); }"
OPENSSL = """\
openssl_conf = all
[all]
providers = named
[named]
own = library
[library]
module = /usr/lib/own.so
activate = 1
"""


def compiled(text: str, directory: Path) -> Path:
    """A library."""
    source, library = directory / "own.c", directory / "own.so"
    source.write_text(text)
    subprocess.run(
        ["gcc", "-shared", "-nostdlib", "-fPIC", "-o", library, source],
        check=True,
        timeout=PROGRAM_SECONDS,
    )
    return library


async def test_no_configuration_of_the_image_is_the_agents(
    sandbox_image: str, tmp_path: Path
) -> None:
    """The agent's own OpenSSL would load code that the image's configuration names."""
    root = busybox()
    root.copy("usr/lib/own.so", compiled(LIBRARY, tmp_path))
    root.file("usr/lib/ssl/openssl.cnf", OPENSSL.encode(), 0o644)
    with (
        imported(root.data()) as name,
        state(image=sandbox_image, images=(sandbox_image, name)) as settings,
    ):
        async with running(settings) as plane:
            await check(name, settings, plane.levels.values())
            box = await Box.create(plane, "high", image=name)
            assert (await box.run("echo well")).stdout == "well\n"
            await box.close()


async def test_a_workspace_at_another_path(foreign: Foreign) -> None:
    image = foreign.names["every"]
    box = await Box.create(foreign.plane, "high", image=image, workspace_path="/home/user")
    await box.write("/home/user/file", b"own")
    assert (await box.run("cat file /home/user/file")).stdout == "ownown"
    for path in ("/data", "/data/below", "/data/other"):
        with pytest.raises(ValidationError, match="workspace_path overlaps with /data"):
            await Box.create(foreign.plane, "high", image=image, workspace_path=path)


async def test_a_link_where_the_workspace_would_be_is_refused(
    sandbox_image: str,
) -> None:
    """Its mount would be moved, for example over the loader's files."""
    root = busybox()
    root.link("app", "etc")
    with (
        imported(root.data()) as name,
        state(image=sandbox_image, images=(sandbox_image, name)) as settings,
    ):
        async with running(settings) as plane:
            await check(name, settings, plane.levels.values())
            for path in ("/app", "/app/deep"):
                with pytest.raises(ValidationError, match="/app"):
                    await Box.create(plane, "high", image=name, workspace_path=path)
            assert await plane.engine.list() == []

"""The Docker engine, with real containers whose first process only waits."""

import asyncio
import gc
import os
import secrets
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine.base import (
    LABEL_INSTANCE,
    Bind,
    Container,
    ContainerState,
    EngineEvent,
    Limits,
    MountedAgent,
    SandboxSpec,
)
from orchestrator.host.engine.docker import DockerEngine

MIB = 2**20
ENGINE_SOCKET = "/var/run/docker.sock"
TIMEOUT = 60.0


@pytest.fixture(scope="module")
def client() -> Iterator[docker.APIClient]:
    client = docker.APIClient(version="auto")
    yield client
    client.close()


@pytest.fixture(scope="module")
def waiting_image(client: docker.APIClient) -> Iterator[str]:
    """The sandbox image with another first process."""
    base = os.environ.get("PADDOCK_TEST_IMAGE", "paddock/sandbox:latest")
    name = f"paddock-test-{secrets.token_hex(4)}"
    container = client.create_container(base, "true")
    try:
        entry = 'ENTRYPOINT ["/bin/sh", "-c", "echo started; exec sleep 600"]'
        client.commit(container["Id"], repository=name, tag="latest", changes=[entry])
    finally:
        client.remove_container(container["Id"], v=True, force=True)
    yield f"{name}:latest"
    client.remove_image(f"{name}:latest", force=True)


@pytest.fixture
async def engine(client: docker.APIClient) -> AsyncIterator[DockerEngine]:
    instance = secrets.token_hex(4)
    engine = DockerEngine(instance, timeout=TIMEOUT, threads=4)
    yield engine
    await engine.close()
    for left in containers_of(client, instance):
        client.remove_container(left, v=True, force=True)


@pytest.fixture
def spec(
    waiting_image: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> SandboxSpec:
    agent = tmp_path_factory.mktemp("agent")
    return SandboxSpec(
        name=f"paddock-{secrets.token_hex(8)}",
        image=waiting_image,
        labels={"paddock.session": "s1"},
        binds=(Bind(str(tmp_path), "/run/paddock", read_only=True),),
        limits=Limits(cpus=0.5, memory_bytes=64 * MIB, pids=32, tmp_bytes=2 * MIB, shm_bytes=0),
        tmp_exec=False,
        network=None,
        agent=MountedAgent(str(agent), ("/bin/sh", "-c", "echo started; exec sleep 600")),
    )


def containers_of(client: docker.APIClient, instance: str) -> list[str]:
    filters = {"label": [f"paddock.instance={instance}"]}
    return [found["Id"] for found in client.containers(all=True, filters=filters)]


def run(client: docker.APIClient, container_id: str, *argv: str) -> str:
    """The output of a command in the container."""
    made = client.exec_create(container_id, list(argv))
    output: bytes = client.exec_start(made["Id"])
    return output.decode()


async def next_event(events: AsyncIterator[EngineEvent], action: str) -> EngineEvent:
    async with asyncio.timeout(TIMEOUT):
        async for event in events:
            if event.action == action:
                return event
    raise AssertionError(f"the stream ended before {action}")


async def found(engine: DockerEngine, container_id: str) -> Container:
    container = await engine.inspect(container_id)
    assert container is not None
    return container


async def test_it_describes_itself_and_its_images(engine: DockerEngine, waiting_image: str) -> None:
    info = await engine.info()
    assert info.version
    assert info.cgroup_version in ("1", "2")
    image = await engine.image(waiting_image)
    assert image is not None
    assert image.id.startswith("sha256:")
    assert await engine.image("paddock/there-is-none:latest") is None
    spellings = (waiting_image, image.id, f"docker.io/{waiting_image}")
    found = await engine.images([*spellings, "paddock/there-is-none:latest"])
    # A list has less of each image than a look at one.
    assert {name: (each.id, each.labels) for name, each in found.items()} == dict.fromkeys(
        spellings, (image.id, image.labels)
    )


async def test_a_container_s_life(engine: DockerEngine, spec: SandboxSpec) -> None:
    container_id = await engine.create(spec)
    container = await found(engine, container_id)
    assert container.name == spec.name
    assert container.labels["paddock.session"] == "s1"
    assert container.state is ContainerState.RUNNING
    assert container.exit_code is None
    assert container.limits == {"cpus": 0.5, "memory_bytes": 64 * MIB, "pids": 32}
    async with asyncio.timeout(TIMEOUT):
        while "started" not in await engine.logs(container_id):
            pass  # its first process may be slow to print
    assert [entry.id for entry in await engine.list()] == [container_id]

    await engine.pause(container_id)
    await engine.pause(container_id)
    assert [entry.state for entry in await engine.list()] == [ContainerState.PAUSED]
    await engine.resume(container_id)
    await engine.resume(container_id)
    assert (await found(engine, container_id)).state is ContainerState.RUNNING

    await engine.pause(container_id)
    await engine.remove(container_id)
    await engine.remove(container_id)
    assert await engine.inspect(container_id) is None
    assert await engine.list() == []
    assert await engine.logs(container_id) == ""
    with pytest.raises(EngineUnavailableError):
        await engine.pause(container_id)


async def test_what_an_ending_process_says_last_is_read(
    engine: DockerEngine, client: docker.APIClient, waiting_image: str
) -> None:
    """As an agent, it prints after it has hung up."""
    made = client.create_container(
        waiting_image,
        entrypoint=["/bin/sh", "-c", "sleep 0.5; echo last words"],
        labels={LABEL_INSTANCE: engine.instance},
    )
    client.start(made["Id"])
    assert await engine.logs(made["Id"]) == "last words\n"


async def test_the_container_is_confined(
    engine: DockerEngine, client: docker.APIClient, spec: SandboxSpec, tmp_path: Path
) -> None:
    container_id = await engine.create(spec)
    status = run(client, container_id, "cat", "/proc/1/status")
    assert "NoNewPrivs:\t1" in status
    assert "CapBnd:\t00000000000000c0" in status  # SETGID 6 and SETUID 7
    assert run(client, container_id, "ls", "/sys/class/net").split() == ["lo"]
    for path in ("/file", "/run/paddock/file", "/dev/shm/file", "/dev/mqueue/file"):
        assert run(client, container_id, "touch", path) != "", path
    assert os.listdir(tmp_path) == []
    script = "printf '#!/bin/sh\\necho ran\\n' > /tmp/x; chmod +x /tmp/x; /tmp/x"
    assert "Permission denied" in run(client, container_id, "sh", "-c", script)
    full = run(client, container_id, "sh", "-c", "head -c 9m /dev/zero > /tmp/y")
    assert "No space left" in full


async def test_high_may_run_from_tmp_and_share_memory(
    engine: DockerEngine, client: docker.APIClient, spec: SandboxSpec
) -> None:
    spec = replace(spec, tmp_exec=True, limits=replace(spec.limits, shm_bytes=4 * MIB))
    container_id = await engine.create(spec)
    script = "printf '#!/bin/sh\\necho ran\\n' > /tmp/x; chmod +x /tmp/x; /tmp/x"
    assert run(client, container_id, "sh", "-c", script) == "ran\n"
    assert run(client, container_id, "df", "--output=size", "/dev/shm").split()[1] == "4096"


async def test_events_of_this_instance(
    engine: DockerEngine, client: docker.APIClient, spec: SandboxSpec
) -> None:
    other = DockerEngine(secrets.token_hex(4), timeout=TIMEOUT)
    try:
        async with aclosing(engine.events()) as events:
            await next_event(events, "resync")
            foreign = await other.create(replace(spec, name=f"{spec.name}-other"))
            await other.remove(foreign)
            container_id = await engine.create(spec)
            await engine.pause(container_id)
            assert (await anext(events)).action == "pause"
            await engine.resume(container_id)
            assert (await anext(events)).action == "unpause"
            client.kill(container_id, "SIGKILL")
            died = await next_event(events, "die")
            assert died == EngineEvent("die", container_id, died.labels, 137)
            assert died.labels["paddock.session"] == "s1"
        ended = await found(engine, container_id)
        assert (ended.state, ended.exit_code) == (ContainerState.EXITED, 137)
        assert [entry.exit_code for entry in await engine.list()] == [137]
    finally:
        await other.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "engine-events"]


async def test_a_child_that_is_killed_for_memory_is_an_event(
    engine: DockerEngine, client: docker.APIClient, spec: SandboxSpec
) -> None:
    async with aclosing(engine.events()) as events:
        await next_event(events, "resync")
        container_id = await engine.create(spec)
        hog = "echo 1000 > /proc/self/oom_score_adj; exec tail /dev/zero"
        await asyncio.to_thread(run, client, container_id, "sh", "-c", hog)
        assert (await next_event(events, "oom")).container_id == container_id
        assert (await found(engine, container_id)).state is ContainerState.RUNNING


async def test_closing_the_engine_ends_its_streams(engine: DockerEngine) -> None:
    events = engine.events()
    assert (await anext(events)).action == "resync"
    await engine.close()
    with pytest.raises(StopAsyncIteration):
        await anext(events)
    with pytest.raises(EngineUnavailableError, match="closed"):
        await engine.info()


@pytest.mark.parametrize("fault", ["image", "bind", "network", "name"])
async def test_a_failed_create_leaves_nothing(
    engine: DockerEngine, client: docker.APIClient, spec: SandboxSpec, fault: str
) -> None:
    expected, wanted = 0, spec
    if fault == "image":
        wanted = replace(spec, image="paddock/there-is-none:latest")
    elif fault == "bind":
        wanted = replace(spec, binds=(Bind("/no/such/place", "/x", read_only=True),))
    elif fault == "network":
        wanted = replace(spec, network="paddock-no-such-network")
    else:
        await engine.create(spec)
        expected = 1
    with pytest.raises(EngineUnavailableError) as caught:
        await engine.create(wanted)
    assert "/no/such/place" not in caught.value.detail
    if fault == "image":
        assert "paddock images build" in caught.value.detail
    assert len(await engine.list()) == expected


async def test_an_abandoned_create_leaves_nothing(
    client: docker.APIClient, spec: SandboxSpec
) -> None:
    instance = secrets.token_hex(4)
    engine = DockerEngine(instance, timeout=TIMEOUT)
    creating = asyncio.create_task(engine.create(spec))
    await asyncio.sleep(0)  # the call is under way
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    await engine.close()
    assert containers_of(client, instance) == []


class Proxy:
    """Forwards connections to the engine until `cut` is called."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def cut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._writers):
            writer.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward_reader, onward = await asyncio.open_unix_connection(ENGINE_SOCKET)
        self._writers |= {writer, onward}
        await asyncio.gather(self._pass(reader, onward), self._pass(onward_reader, writer))
        self._writers -= {writer, onward}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except OSError:
            return
        finally:
            writer.close()


async def test_events_come_back_after_an_interruption(
    engine: DockerEngine, spec: SandboxSpec, tmp_path: Path
) -> None:
    proxy = Proxy(str(tmp_path / "engine.sock"))
    await proxy.open()
    watcher = DockerEngine(engine.instance, host=f"unix://{proxy.path}", timeout=TIMEOUT)
    container_id = await engine.create(spec)
    async with aclosing(watcher.events()) as events:
        await next_event(events, "resync")
        await engine.pause(container_id)
        await next_event(events, "pause")
        await proxy.cut()
        await engine.resume(container_id)  # while no connection is open
        await proxy.open()
        await next_event(events, "resync")
        assert (await next_event(events, "unpause")).container_id == container_id
    await watcher.close()
    await proxy.cut()


async def test_an_engine_that_never_answers(tmp_path: Path) -> None:
    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    path = str(tmp_path / "engine.sock")
    server = await asyncio.start_unix_server(ignore, path)
    engine = DockerEngine("0a1b2c3d", host=f"unix://{path}", timeout=0.2, threads=1)
    events = engine.events()
    reading = asyncio.ensure_future(anext(events))
    # More calls than threads: calls that wait for a thread are refused in time as well.
    answers = await asyncio.gather(*(engine.remove("c") for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [EngineUnavailableError] * 3
    # The one thread is still in the first call: whose fault it is, the error says.
    with pytest.raises(EngineUnavailableError, match=r"within 0\.2 s: its earlier calls are slow"):
        await engine.inspect("c")
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await engine.close()
    server.close()
    await server.wait_closed()


# If a socket can't connect, the SDK leaves it to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
async def test_no_engine_at_all(tmp_path: Path) -> None:
    engine = DockerEngine("0a1b2c3d", host=f"unix://{tmp_path}/none.sock", timeout=5)
    with pytest.raises(EngineUnavailableError, match="does not answer"):
        await engine.info()
    await engine.close()
    del engine
    gc.collect()

"""The Docker engine. Only this family of modules talks to its socket.

The `docker` SDK blocks, so its calls run in a bounded pool of threads. Each call has two time-outs:
the client's, on every read, which frees the thread; and the loop's, on the whole call, including
the wait for a thread. Work of several containers has the loop's time-out for each of them, so that
a slow host is not taken for one that hangs.
"""

import asyncio
import logging
import math
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.utils import kwargs_from_env

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.lane import Lane
from orchestrator.ground.task_scope import TaskScope
from orchestrator.ground.threads import bounded
from orchestrator.host.engine import (
    docker_containers,
    docker_foreign,
    docker_kernel,
    docker_rates,
    docker_records,
)
from orchestrator.host.engine.base import (
    LABEL_INSTANCE,
    Container,
    ContainerState,
    Engine,
    EngineEvent,
    EngineInfo,
    Image,
    MountedAgent,
    OpenNetwork,
    Rates,
    SandboxSpec,
    missing_image,
)
from orchestrator.host.engine.docker_events import EventStream
from orchestrator.host.engine.docker_network import Bridge
from orchestrator.host.engine.docker_resolvers import close_engines_own
from orchestrator.host.engine.docker_spec import (
    container_config,
    refuse_dropped_limits,
    unknown_runtime,
)
from sandbox_agent.decide.facilities import Kernel

LOG_LINES = 100
# A copy of the agent, or a look into an image, takes as long as so many other calls.
_LONG_STEPS = 5
# An agent that has hung up is about to end; one that hangs is not.
_ENDING_SECONDS = 2
# Used at shutdown; running calls have their own time-outs.
_END_SECONDS = 120.0

Answer = TypeVar("Answer")
_log = logging.getLogger(__name__)


class DockerEngine(Engine):
    """Sandboxes as containers of one Docker engine."""

    def __init__(
        self,
        instance: str,
        *,
        host: str | None = None,
        timeout: float = 30.0,
        threads: int = 8,
        resolvers: tuple[str, ...] = (),
    ) -> None:
        """Contacts nothing before the first call.

        `host` is as in DOCKER_HOST, None for the environment's; `timeout` is in seconds.
        `resolvers` are for sandboxes with a network; if there are none, those of the host are used.
        """
        self.instance = instance
        self._host = host
        self._timeout = timeout
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="engine")
        # A removal takes long. However many there are, stops and creations find a thread.
        self._removals = Lane(max(1, threads // 2), timeout)
        self._client: docker.APIClient | None = None
        self._client_lock = threading.Lock()
        # Containers that the engine could not remove. It is asked again when it is back.
        self._unremoved: set[str] = set()
        self._removing_again = TaskScope("the removal of containers")
        self._network = Bridge(instance, resolvers)
        self._streams: set[EventStream] = set()

    async def info(self) -> EngineInfo:
        """See `Engine.info`."""
        return await self._call(
            "describe itself", lambda c: docker_records.engine_info(c.info(), c.version())
        )

    async def image(self, name: str) -> Image | None:
        """See `Engine.image`."""

        def look(client: docker.APIClient) -> Image | None:
            try:
                return docker_records.image(
                    client.inspect_image(name)  # type: ignore[no-untyped-call]
                )
            except NotFound:
                return None

        return await self._call("look for an image", look)

    async def images(self, names: Sequence[str]) -> dict[str, Image]:
        """See `Engine.images`."""
        return await self._call(
            "list images", lambda client: docker_records.named_images(client.images(), names)
        )

    async def kernel(self, image: str, runtime: str | None) -> Kernel:
        """See `Engine.kernel`."""
        return await self._call(
            "look at a sandbox's kernel",
            lambda client: docker_kernel.look(client, self.instance, image, runtime),
        )

    async def root_inside(self, image: str, runtime: str | None) -> str | None:
        """See `Engine.root_inside`."""
        return await self._call(
            "try root inside",
            lambda client: docker_kernel.root_inside(client, self.instance, image, runtime),
        )

    async def copy_agent(self, image: str, target: str) -> None:
        """See `Engine.copy_agent`."""
        await self._call(
            "copy the agent",
            lambda client: docker_foreign.copy_agent(client, self.instance, image, target),
            steps=_LONG_STEPS,
        )

    async def look_into(
        self, image: str, agent: MountedAgent, path: str, commands: Sequence[str]
    ) -> dict[str, Any]:
        """See `Engine.look_into`."""
        look = partial(docker_foreign.look_into, path=path, commands=commands)
        return await self._call(
            "look into an image",
            lambda client: look(client, self.instance, image, agent),
            steps=_LONG_STEPS,
        )

    async def refuse_links(
        self,
        image: str,
        directories: Sequence[str],
        files: Sequence[str],
        absent: Sequence[str],
    ) -> None:
        """See `Engine.refuse_links`."""
        refuse = partial(
            docker_foreign.refuse_links, directories=directories, files=files, absent=absent
        )
        await self._call(
            "look at an image's paths",
            lambda client: refuse(client, self.instance, image),
            steps=2,
        )

    async def create(self, spec: SandboxSpec) -> str:
        """See `Engine.create`."""
        future = self._submit(lambda client: self._create(client, spec))
        try:
            return await self._answer("start the sandbox", future)
        except BaseException:
            # The thread continues after a time-out. If it still makes a container, nobody owns it.
            future.add_done_callback(self._discard)
            raise

    async def inspect(self, container_id: str) -> Container | None:
        """See `Engine.inspect`."""
        return await self._call(
            "inspect a container", lambda c: docker_containers.inspect(c, container_id)
        )

    async def list(self) -> list[Container]:
        """See `Engine.list`."""
        filters = {"label": [f"{LABEL_INSTANCE}={self.instance}"]}

        def look(client: docker.APIClient) -> list[Container]:
            return [docker_records.listed(c) for c in client.containers(all=True, filters=filters)]

        return await self._call("list containers", look)

    async def pause(self, container_id: str) -> None:
        """See `Engine.pause`."""

        def freeze(client: docker.APIClient) -> None:
            docker_containers.unless_already(
                client, client.pause, container_id, ContainerState.PAUSED
            )

        await self._call("pause a container", freeze)

    async def resume(self, container_id: str) -> None:
        """See `Engine.resume`."""

        def thaw(client: docker.APIClient) -> None:
            docker_containers.unless_already(
                client, client.unpause, container_id, ContainerState.RUNNING
            )

        await self._call("resume a container", thaw)

    async def remove(self, container_id: str) -> None:
        """See `Engine.remove`."""
        try:
            await self._remove(container_id)
        except EngineUnavailableError:
            self._unremoved.add(container_id)
            raise
        self._unremoved.discard(container_id)

    async def _remove(self, container_id: str) -> None:
        try:
            removal = await self._removals.begin(
                lambda: self._submit(lambda client: docker_containers.remove(client, container_id))
            )
        except TimeoutError as error:
            raise EngineUnavailableError(
                f"the container engine removed no container within {self._timeout:g} s"
            ) from error
        await self._answer("remove a container", removal)

    async def _remove_again(self) -> None:
        for container_id in list(self._unremoved):
            try:
                await self.remove(container_id)
            except EngineUnavailableError as error:
                _log.error("container %s stays: %s", container_id[:12], error.detail)

    async def logs(self, container_id: str) -> str:
        """See `Engine.logs`: at most the last 100 lines; a process that is ending says its last."""

        def read(client: docker.APIClient) -> str:
            try:
                docker_containers.wait_for_end(client, container_id, _ENDING_SECONDS)
                output: bytes = client.logs(container_id, tail=LOG_LINES)
            except NotFound:
                return ""
            return output.decode(errors="replace")

        return await self._call("read a container's log", read)

    async def ensure_open_network(self, image: str) -> OpenNetwork:
        """See `Engine.ensure_open_network`."""
        if not self._network.trusted():
            await self._call(
                "make the open network",
                lambda client: self._network.ensure(client, image),
                steps=Bridge.STEPS,
            )
        return OpenNetwork(self._network.name, self._network.resolvers)

    async def close_names(self, container_id: str, image: str) -> None:
        """See `Engine.close_names`."""
        await self._call(
            "take its name server from a sandbox",
            lambda client: close_engines_own(client, image, self.instance, container_id),
        )

    async def hold_device(
        self, image: str, device: str, rates: Rates, container_id: str | None = None
    ) -> None:
        """See `Engine.hold_device`."""
        hold = partial(docker_rates.hold_device, rates=rates, container_id=container_id)
        await self._call(
            "hold a disk to its rates",
            lambda client: hold(client, image, self.instance, device),
        )

    async def hold_link(self, image: str, container_id: str, rates: Rates) -> None:
        """See `Engine.hold_link`."""
        hold = partial(docker_rates.hold_link, bridge=self._network.bridge, rates=rates)
        await self._call(
            "hold a network to its rates",
            lambda client: hold(client, image, self.instance, container_id),
            steps=2,
        )

    async def try_link(self, image: str) -> None:
        """See `Engine.try_link`."""
        await self._call(
            "try rates of a network",
            lambda client: docker_rates.try_link(client, image, self.instance),
        )

    async def remove_open_network(self, image: str) -> None:
        """See `Engine.remove_open_network`."""
        await self._call(
            "remove the open network",
            lambda client: self._network.remove(client, image),
            steps=2,
        )

    async def events(self) -> AsyncGenerator[EngineEvent, None]:
        """See `Engine.events`; close the generator to end its thread."""
        stream = EventStream(self._connect, self.instance, self._timeout)
        self._streams.add(stream)
        generator = stream.events()
        try:
            async for event in generator:
                if event.action == "resync":  # the engine may have been restarted
                    self._network.distrust()
                    self._removing_again.spawn(self._remove_again())
                yield event
        finally:
            self._streams.discard(stream)
            await generator.aclose()

    async def close(self) -> None:
        """See `Engine.close`; waits for running calls, which their time-outs bound."""
        for stream in list(self._streams):
            stream.stop()
        await self._removing_again.close()
        try:
            await bounded(self._pool.shutdown, _END_SECONDS)
        except TimeoutError:
            _log.error("calls to the container engine have not ended within %g s", _END_SECONDS)
        if self._client is not None:
            self._client.close()

    async def _call(
        self, what: str, work: Callable[[docker.APIClient], Answer], *, steps: int = 1
    ) -> Answer:
        return await self._answer(what, self._submit(work), steps=steps)

    def _submit(self, work: Callable[[docker.APIClient], Answer]) -> Future[Answer]:
        try:
            return self._pool.submit(lambda: work(self._connect()))
        except RuntimeError as error:
            raise EngineUnavailableError("the container engine's client is closed") from error

    async def _answer(self, what: str, future: Future[Answer], *, steps: int = 1) -> Answer:
        seconds = steps * self._timeout
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError as error:
            # The time-out has cancelled a call that had not begun.
            waited = ": its earlier calls are slow" if future.cancelled() else ""
            raise EngineUnavailableError(
                f"the container engine did not {what} within {seconds:g} s{waited}"
            ) from error
        except APIError as error:
            # The engine's own words may contain paths of the host, so they go to the log only.
            _log.warning("the container engine could not %s: %s", what, error.explanation)
            raise EngineUnavailableError(
                f"the container engine could not {what} (HTTP {error.status_code})"
            ) from error
        except (DockerException, OSError) as error:  # requests' errors are OSErrors
            _log.warning("the container engine could not %s: %s", what, str(error))
            raise EngineUnavailableError(
                f"the container engine does not answer: it could not {what}"
            ) from error

    def _connect(self) -> docker.APIClient:
        """The client; the first call that reaches the engine creates it."""
        with self._client_lock:
            if self._client is None:
                environment: Mapping[str, Any] = kwargs_from_env()
                address = {"base_url": self._host} if self._host else environment
                self._client = docker.APIClient(
                    version="auto",
                    timeout=math.ceil(self._timeout),
                    max_pool_size=self._threads + 1,
                    **address,
                )
            return self._client

    def _create(self, client: docker.APIClient, spec: SandboxSpec) -> str:
        try:
            made = client.create_container_from_config(  # type: ignore[no-untyped-call]
                container_config(spec, self.instance, ipv6=docker_kernel.has_ipv6()), spec.name
            )
        except ImageNotFound as error:
            raise missing_image(spec.image) from error
        except APIError as error:
            if error.status_code != 409:  # the name belongs to another container
                self._remove_left_over(client, spec.name)
            raise unknown_runtime(spec.runtime, error.explanation) or error from None
        except (DockerException, OSError):
            self._remove_left_over(client, spec.name)
            raise
        container_id: str = made["Id"]
        FaultPoint.CREATE_CONTAINER_MADE.reached()
        try:
            refuse_dropped_limits(made.get("Warnings"))
            client.start(container_id)
        except BaseException:
            if spec.network:  # it may be gone
                self._network.distrust()
            self._remove_left_over(client, container_id)
            raise
        return container_id

    def _discard(self, created: Future[str]) -> None:
        """Removes the container of a `create` call that nobody waits for any more."""
        if created.cancelled() or created.exception() is not None:
            return
        container_id = created.result()
        try:
            self._submit(lambda client: self._remove_left_over(client, container_id))
        except EngineUnavailableError:  # closing: this is the last thread
            self._remove_left_over(self._connect(), container_id)

    def _remove_left_over(self, client: docker.APIClient, name: str) -> None:
        try:
            docker_containers.remove(client, name)
        except (DockerException, OSError) as error:
            # Its label names this instance, so the next start removes it.
            _log.warning("a container could not be removed: %s: %s", name, str(error))

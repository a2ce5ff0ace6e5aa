"""Calls to the Docker engine, in a bounded pool of threads, each within its time.

The `docker` SDK blocks. Each call has two time-outs: the client's, on every read, which frees the
thread; and the loop's, on the whole call, including the wait for a thread. Work of several
containers has the loop's time-out for each of them, so that a slow host is not taken for one that
hangs.
"""

import asyncio
import logging
import math
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import docker
from docker.errors import APIError, DockerException
from docker.utils import kwargs_from_env

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.ground.threads import bounded

# Used at shutdown; running calls have their own time-outs.
_END_SECONDS = 120.0

Answer = TypeVar("Answer")
_log = logging.getLogger(__name__)


class EngineCalls:
    """The client of one engine, and its threads."""

    def __init__(self, host: str | None, timeout: float, threads: int) -> None:
        """`host` is as in DOCKER_HOST, None for the environment's; `timeout` is in seconds."""
        self.timeout = timeout
        self._host = host
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="engine")
        self._client: docker.APIClient | None = None
        self._client_lock = threading.Lock()

    async def call(
        self, what: str, work: Callable[[docker.APIClient], Answer], *, steps: int = 1
    ) -> Answer:
        """The answer to `work`, which takes as long as `steps` calls; `what` is for errors.

        Raises: EngineUnavailableError, and the domain's errors of `work`.
        """
        return await self.answer(what, self.submit(work), steps=steps)

    def submit(self, work: Callable[[docker.APIClient], Answer]) -> Future[Answer]:
        """Begins a call. Raises: EngineUnavailableError if the client is closed."""
        try:
            return self._pool.submit(lambda: work(self.connect()))
        except RuntimeError as error:
            raise EngineUnavailableError("the container engine's client is closed") from error

    async def answer(self, what: str, future: Future[Answer], *, steps: int = 1) -> Answer:
        """The answer to a call that was begun. Raises: as `call`."""
        seconds = steps * self.timeout
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

    def connect(self) -> docker.APIClient:
        """The client; the first call that reaches the engine creates it. Blocks."""
        with self._client_lock:
            if self._client is None:
                environment: Mapping[str, Any] = kwargs_from_env()
                address = {"base_url": self._host} if self._host else environment
                self._client = docker.APIClient(
                    version="auto",
                    timeout=math.ceil(self.timeout),
                    max_pool_size=self._threads + 1,
                    **address,
                )
            return self._client

    async def close(self) -> None:
        """Waits for running calls, which their time-outs bound."""
        try:
            await bounded(self._pool.shutdown, _END_SECONDS)
        except TimeoutError:
            _log.error("calls to the container engine have not ended within %g s", _END_SECONDS)
        if self._client is not None:
            self._client.close()

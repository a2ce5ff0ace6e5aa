"""Docker's event stream, read by one thread into the event loop."""

import asyncio
import json
import logging
import os
import socket
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import suppress
from functools import partial

import docker
import requests

from orchestrator.ground.threads import bounded
from orchestrator.host.engine import docker_records
from orchestrator.host.engine.base import LABEL_INSTANCE, EngineEvent

ACTIONS = ("die", "oom", "pause", "unpause")
RESYNC = EngineEvent(action="resync", container_id="", labels={})

# A connection that is silent for this long is replaced, because it may be dead.
IDLE_SECONDS = 60.0
BACK_OFF_SECONDS = (0.1, 5.0)
JOIN_SECONDS = 2.0
# If more events than this are unread, one `resync` replaces them.
QUEUE_LIMIT = 4096

_log = logging.getLogger(__name__)


class EventStream:
    """One reader of this instance's container events."""

    def __init__(
        self, connect: Callable[[], docker.APIClient], instance: str, timeout: float
    ) -> None:
        """`connect` returns the client to use; `timeout` bounds connecting, in seconds."""
        self._connect = connect
        self._filters = json.dumps(
            {
                "type": ["container"],
                "event": list(ACTIONS),
                "label": [f"{LABEL_INSTANCE}={instance}"],
            }
        )
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[EngineEvent | None] = asyncio.Queue()
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._since: str | None = None

    async def events(self) -> AsyncGenerator[EngineEvent, None]:
        """Yields events until `stop()`.

        Every connection, including the first, begins with a `resync`.
        """
        thread = threading.Thread(target=self._read, name="engine-events", daemon=True)
        thread.start()
        try:
            while (event := await self._queue.get()) is not None:
                yield event
        finally:
            self.stop()
            with suppress(TimeoutError):  # the thread is abandoned: nobody waits for it any more
                await bounded(partial(thread.join, JOIN_SECONDS), 2 * JOIN_SECONDS)

    def stop(self) -> None:
        """Ends the thread, and with it the iteration. May be called twice."""
        self._stopped.set()
        with self._lock:
            if self._socket is not None:
                # Wakes a blocked read. Closing a socket in use would not wake it.
                with suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def _read(self) -> None:
        """The thread. However it ends, it ends the iteration."""
        try:
            self._run()
        finally:
            self._post(None)

    def _run(self) -> None:
        delay, longest = BACK_OFF_SECONDS
        while not self._stopped.is_set():
            try:
                for line in self._lines():
                    delay = BACK_OFF_SECONDS[0]
                    self._take(line)
            except (requests.RequestException, docker.errors.DockerException, OSError) as error:
                if not self._stopped.is_set():
                    _log.info("engine events interrupted: %s", str(error))
            self._stopped.wait(delay)
            delay = min(delay * 2, longest)

    def _lines(self) -> Iterator[bytes]:
        """Yields one connection's events, after an empty line once it is established."""
        client = self._connect()
        with client.get(
            f"{client.base_url}/v{client.api_version}/events",
            params={"filters": self._filters, "since": self._since},
            stream=True,
            timeout=(self._timeout, IDLE_SECONDS),
        ) as response:
            response.raise_for_status()
            try:
                self._hold(response)
                yield b""
                yield from response.iter_lines(chunk_size=None)
            finally:
                self._let_go()

    def _hold(self, response: requests.Response) -> None:
        with self._lock:
            self._socket = socket.socket(fileno=os.dup(response.raw.fileno()))
        if self._stopped.is_set():  # stopped while connecting
            self.stop()

    def _let_go(self) -> None:
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def _take(self, line: bytes) -> None:
        if not line:
            self._post(RESYNC)
            return
        try:
            raw = json.loads(line)
            event = docker_records.event(raw)
            after = int(raw["timeNano"]) + 1
        except (ValueError, KeyError, TypeError) as error:
            _log.warning("an engine event could not be read: %r", error)
            return
        self._since = f"{after // 10**9}.{after % 10**9:09d}"
        self._post(event)

    def _post(self, event: EngineEvent | None) -> None:
        # The loop may have been closed without closing the generator.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._deliver, event)

    def _deliver(self, event: EngineEvent | None) -> None:
        if self._queue.qsize() >= QUEUE_LIMIT:
            while not self._queue.empty():
                self._queue.get_nowait()
            self._queue.put_nowait(RESYNC)
        self._queue.put_nowait(event)

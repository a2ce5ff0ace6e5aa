"""An export by HTTP: each batch is the body of a POST, and a status of 2xx acknowledges it."""

import asyncio
import gzip
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, NamedTuple

from pydantic import SecretStr

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.http_post import FAILURES, NameLookups, post_and_read
from orchestrator.ground.threads import Threads
from orchestrator.operate.exports.destination import ExportedEvent, ExportError

BATCH_SECONDS = 60.0
_FILES_SECONDS = 30.0
_MOST_ANSWER = 64 * 1024
# Fast: a batch is sent once, and its text repeats itself.
_LEVEL = 1


class HttpForm(NamedTuple):
    """How a batch is sent: as an array or as lines of JSON, compressed or not."""

    body: Literal["array", "lines"]
    gzip: bool


class _Ready(NamedTuple):
    body: bytes
    token: SecretStr | None
    tls: ssl.SSLContext | None


class HttpDestination:
    """Posts to one URL. No redirect is followed, and no proxy of the environment is used."""

    def __init__(
        self,
        url: str,
        form: HttpForm,
        token: Callable[[], SecretStr | None],
        context: Callable[[], ssl.SSLContext | None],
        seconds: float = BATCH_SECONDS,
    ) -> None:
        """`token` and `context` read files anew for each batch.

        They raise ConfigError, OSError or ValueError.
        """
        self._url = url
        self._form = form
        self._token = token
        self._context = context
        self._seconds = seconds
        self._threads = Threads("the files of an export", 1)
        self._lookups = NameLookups()

    async def send(self, events: Sequence[ExportedEvent]) -> None:
        """As `Destination.send`."""
        try:
            ready = await self._threads.call(partial(self._prepare, events), _FILES_SECONDS)
            async with asyncio.timeout(self._seconds):
                status = (
                    await post_and_read(
                        self._url,
                        self._headers(ready.token),
                        ready.body,
                        _MOST_ANSWER,
                        self._lookups,
                        ready.tls,
                    )
                ).status
        except ConfigError as error:
            raise ExportError(str(error)) from None
        except TimeoutError:
            raise ExportError(f"no answer within {self._seconds:g} s") from None
        except FAILURES as error:
            raise ExportError(str(error) or type(error).__name__) from None
        if not 200 <= status < 300:
            raise ExportError(f"status {status}")

    async def close(self) -> None:
        """Nothing is open between batches."""

    def _prepare(self, events: Sequence[ExportedEvent]) -> _Ready:
        texts = [event.text for event in events]
        if self._form.body == "array":
            body = b"[" + b",".join(texts) + b"]"
        else:
            body = b"".join(text + b"\n" for text in texts)
        if self._form.gzip:
            # Without a time, so that a batch that is sent again is the same bytes.
            body = gzip.compress(body, _LEVEL, mtime=0)
        return _Ready(body, self._token(), self._context())

    def _headers(self, token: SecretStr | None) -> dict[str, str]:
        kind = "application/json" if self._form.body == "array" else "application/x-ndjson"
        headers = {"Content-Type": kind}
        if self._form.gzip:
            headers["Content-Encoding"] = "gzip"
        if token is not None:
            headers["Authorization"] = f"Bearer {token.get_secret_value()}"
        return headers

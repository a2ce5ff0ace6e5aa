"""Requests to issuers: bounded in time and size, and to nowhere but where they were sent."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import aiohttp
from yarl import URL

from orchestrator.ground.http_connector import BoundedConnector
from orchestrator.ground.http_post import NameLookups
from orchestrator.ground.strict_json import JsonError, read
from orchestrator.rules.oidc.issuer_terms import check_issuer_url

# From the look-up of the name to the last byte.
FETCH_SECONDS = 5.0
# The longest answer: 64 keys of 4096 bits have 60 KB.
MOST_BYTES = 128 * 1024
_UNBOUNDED = aiohttp.ClientTimeout(total=None)


class IssuerError(Exception):
    """The issuer does not answer, or not as it should. The message is for the operator."""


class IssuerRefusal(Exception):  # noqa: N818
    """The issuer has refused what was presented, with one of the codes of OAuth 2.0."""

    def __init__(self, code: str) -> None:
        super().__init__(f"the issuer says {code}")
        self.code = code


class IssuerHttp:
    """Requests to issuers."""

    def __init__(self) -> None:
        self._lookups = NameLookups()

    async def get(self, url: str) -> dict[str, Any]:
        """The JSON object at an address. Raises: IssuerError."""
        status, found = await self._ask("GET", url, None)
        if status != 200:
            raise IssuerError(f"{url} answers {status}")
        return found

    async def post(self, url: str, form: Mapping[str, str]) -> dict[str, Any]:
        """The JSON object that a form is answered with. Raises: IssuerError, IssuerRefusal."""
        status, found = await self._ask("POST", url, form)
        if status == 200:
            return found
        code = found.get("error")
        if 400 <= status < 500 and isinstance(code, str) and code.isascii() and len(code) <= 64:
            raise IssuerRefusal(code)
        raise IssuerError(f"{url} answers {status}")

    async def _ask(
        self, method: str, url: str, form: Mapping[str, str] | None
    ) -> tuple[int, dict[str, Any]]:
        try:
            check_issuer_url(url)
            async with (
                asyncio.timeout(FETCH_SECONDS),
                aiohttp.ClientSession(
                    connector=BoundedConnector(self._lookups),
                    timeout=_UNBOUNDED,
                    headers={"User-Agent": "paddock", "Accept-Encoding": "identity"},
                    auto_decompress=False,
                    cookie_jar=aiohttp.DummyCookieJar(),
                ) as client,
                client.request(
                    method, URL(url, encoded=True), data=form, allow_redirects=False
                ) as response,
            ):
                body = await _body(response)
                return response.status, _members(body, url, response.status)
        except TimeoutError:
            raise IssuerError(f"{url} does not answer within {FETCH_SECONDS:g} s") from None
        except (OSError, ValueError, aiohttp.ClientError) as error:
            raise IssuerError(f"{url}: {error or type(error).__name__}") from None


async def _body(response: aiohttp.ClientResponse) -> bytes:
    found = bytearray()
    async for part in response.content.iter_any():
        found += part
        if len(found) > MOST_BYTES:
            raise IssuerError(f"{response.url} answers with more than {MOST_BYTES} bytes")
    return bytes(found)


def _members(body: bytes, url: str, status: int) -> dict[str, Any]:
    try:
        found = read(body, "the answer")
    except (JsonError, json.JSONDecodeError):
        found = None
    if isinstance(found, dict):
        return found
    if status != 200:
        return {}
    raise IssuerError(f"{url} answers no JSON object")

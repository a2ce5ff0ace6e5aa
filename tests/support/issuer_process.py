"""A real issuer of tokens: npm's `oidc-provider`, in a process of its own."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, CookieJar

from tests.support.free_ports import free_port

_SOURCE = Path(__file__).with_name("issuer")
AUDIENCE = "https://paddock.test"
CLIENT = "paddock"


class IssuerProcess:
    """One issuer. `order` has it do what no honest one does; `stop` and `start` are its life."""

    def __init__(self, redirect_uri: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._redirect_uri = redirect_uri
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Returns when it listens."""
        assert (_SOURCE / "node_modules").is_dir(), "no oidc-provider: `make issuer` installs it"
        self._process = await asyncio.create_subprocess_exec(
            *("node", "issuer.mjs", str(self.port), AUDIENCE, self._redirect_uri),
            cwd=_SOURCE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line == b"listens\n":
                return
        raise AssertionError("the issuer has ended")

    async def stop(self) -> None:
        """Ends it; nothing answers at its address."""
        if self._process is not None:
            self._process.kill()
            await self._process.wait()
            self._process = None

    async def order(self, what: str, **members: Any) -> dict[str, Any]:
        """Has it do something: `renew` its keys, `delay` its answers, sign a `token`."""
        async with (
            ClientSession() as http,
            http.post(f"{self.url}/test/{what}", json=members) as answer,
        ):
            found: dict[str, Any] = await answer.json()
            return found

    async def token(
        self, user: str, *, header: Mapping[str, Any] | None = None, **claims: Any
    ) -> str:
        """An access token of the user, as it issues them, unless members are given."""
        now = int(time.time())
        groups = user.split(".")[1:]
        found = await self.order(
            "token",
            header={"typ": "at+jwt", **(header or {})},
            claims={
                **{"iss": self.url, "aud": AUDIENCE, "sub": user, "groups": groups},
                **{"iat": now, "exp": now + 300},
                **claims,
            },
        )
        return str(found["token"])

    async def approve(self, address: str, user: str) -> str:
        """Signs the user in at an address of the issuer, as a person would; where it ends."""
        jar = CookieJar(unsafe=True)
        async with ClientSession(cookie_jar=jar) as http:
            return await _approved(http, address, user, self.url)


async def _approved(http: ClientSession, address: str, user: str, own: str) -> str:
    answer = await http.get(address, allow_redirects=False)
    for _ in range(20):
        location = answer.headers.get("Location")
        if location is not None:
            if not location.startswith(("/", own)):
                return location
            answer = await http.get(_absolute(own, location), allow_redirects=False)
            continue
        page = await answer.text()
        form = _form(page)
        if form is None:
            return page
        action, members = form
        members |= {"login": user, "password": "any"} if 'name="login"' in page else {}
        answer = await http.post(_absolute(own, action), data=members, allow_redirects=False)
    raise AssertionError("the issuer asks again and again")


def _absolute(own: str, address: str) -> str:
    return own + address if address.startswith("/") else address


def _form(page: str) -> tuple[str, dict[str, str]] | None:
    action = re.search(r'<form[^>]*action="([^"]+)"', page)
    if action is None:
        return None
    hidden = re.findall(r'<input[^>]*type="hidden"[^>]*>', page)
    found = {}
    for each in hidden:
        name, value = re.search(r'name="([^"]*)"', each), re.search(r'value="([^"]*)"', each)
        if name is not None:
            found[name[1]] = "" if value is None else value[1]
    return action[1], found


@asynccontextmanager
async def issuer_process(redirect_uri: str) -> AsyncIterator[IssuerProcess]:
    """A started one, which is ended."""
    issuer = IssuerProcess(redirect_uri)
    try:
        await issuer.start()
        yield issuer
    finally:
        await issuer.stop()

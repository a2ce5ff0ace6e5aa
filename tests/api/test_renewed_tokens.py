"""Clients whose token expires in the middle of their work."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.settings.settings import Settings
from paddock.client import Paddock, PaddockSync, UnauthorizedError
from paddock.connect.errors import NoAddressError
from tests.api.conftest import Api
from tests.support.small_issuer import SmallIssuer, small_issuer
from tests.support.until import until

# Seconds for which a token is valid; it is renewed when half of them are over.
VALID = 4


class Token:
    """A token that is valid for a few seconds, and is renewed as often as somebody asks."""

    def __init__(self, issuer: SmallIssuer, user: str) -> None:
        self._issuer, self._user = issuer, user
        self.made: list[str] = []
        self.dead = False
        self.renew()

    @property
    def key(self) -> str:
        return self.made[-1]

    def renew(self) -> None:
        if self.dead:
            raise NoAddressError("the sign-in has ended", "sign in again")
        now = int(time.time())
        number = len(self.made)
        claims: dict[str, Any] = {"iat": now, "exp": now + VALID, "jti": str(number)}
        self.made.append(self._issuer.token(self._user, **claims))
        self.due, self.until = now + VALID / 2, now + VALID


@pytest_asyncio.fixture
async def issuer() -> AsyncIterator[SmallIssuer]:
    async with small_issuer() as issuer:
        yield issuer


@pytest.fixture
def settings(settings: Settings, issuer: SmallIssuer, state_dir: Path) -> Settings:
    file = state_dir / "oidc.toml"
    issuer.write(file, "leeway_seconds = 0\n")
    return settings.model_copy(update={"oidc_file": file})


async def test_a_stream_outlasts_the_token_that_it_began_with(
    api: Api, issuer: SmallIssuer
) -> None:
    token = Token(issuer, "alice.platform")
    first = token.until
    async with (
        Paddock(str(api.server.make_url("")), token, reconnect=0) as paddock,
        aclosing(paddock.events(after=0)) as events,
    ):
        assert await anext(events)
        await until(lambda: time.time() > first + 0.5)
        await api.session(id="later")
        async for event in events:
            if event.session_id == "later":
                break
    assert len(token.made) >= 2
    # Both were shown, by the same user, who has signed in once.
    page = await api.json("GET", "/api/audit?operation=user.sign_in")
    assert len(page["items"]) == 1


async def test_requests_renew_what_is_due(api: Api, issuer: SmallIssuer) -> None:
    token = Token(issuer, "bob.engineers")

    def work() -> None:
        with PaddockSync(str(api.server.make_url("")), token, get_retries=0) as paddock:
            token.due = time.time() + 100
            paddock.sessions.list()
            assert len(token.made) == 1
            token.due = time.time() - 1
            paddock.sessions.list()
            assert len(token.made) == 2
            # A renewal that fails changes nothing while the token so far is valid.
            token.dead, token.due = True, time.time() - 1
            paddock.sessions.list()
            token.made.append("eyJhbGciOiJSUzI1NiJ9.e30.c2ln")
            with pytest.raises(UnauthorizedError, match="sign in again"):
                paddock.sessions.list()

    await asyncio.to_thread(work)

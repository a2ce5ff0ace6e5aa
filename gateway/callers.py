"""Who calls: a key of the cluster, or a user, whom a node knows by their token.

A gateway has no issuers and verifies nothing: it asks a node, as the caller. What it learns is for
what it answers itself. The nodes that it asks for that decide again, so nobody gets a right by it.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from http import HTTPStatus
from typing import NamedTuple

from aiohttp import web

from gateway.access import check, token_of
from gateway.errors import RETRY_SECONDS
from gateway.faces.asking import (
    ANSWER_SECONDS,
    Headers,
    NoAnswerError,
    RefusedError,
    TooLongError,
    asked_of,
    read_answer,
    refusal_of,
)
from gateway.headers import for_asking
from gateway.limits import digest_of
from gateway.members import Member, Members
from orchestrator.ground.errors import NodeUnavailableError, UnauthorizedError
from orchestrator.rules.access.key_bounds import KeyBounds
from orchestrator.rules.access.keys import KeyRing, Principal, Role
from orchestrator.rules.access.users import is_user_token
from paddock.contract.base import READER
from paddock.contract.sign_in import Caller

_PATH = "/api/caller"
# How long a node's answer counts, unless the token ends earlier, or somebody's sign-in was ended.
KNOWN_SECONDS = 10.0
# Users, at 600 bytes each; one that is forgotten is asked for again.
_MOST_KNOWN = 4096
_MOST_BYTES = 2**14
# Nodes that are asked, one after the other, until one answers.
_TRIES = 3
# A node's words to the caller; all other failures are the node's own.
_REFUSALS = frozenset(
    {
        *(HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN),
        *(HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE),
    }
)


class _Known(NamedTuple):
    """A user, and until when by the monotonic clock."""

    principal: Principal
    until: float


class Callers:
    """Knows who presents what."""

    def __init__(
        self,
        keys: KeyRing,
        members: Members,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`keys` tell of their changes, and of sign-ins that were ended."""
        self._keys = keys
        self._members = members
        self._clock = clock
        self._now = now
        # By the digest of the token, in order of use.
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        # Grows with each news, so that no answer from before it is kept.
        self._news = 0
        keys.on_change(self._forget)

    async def authorize(
        self, request: web.Request, roles: Collection[Role], scope: str
    ) -> Principal:
        """The caller, with one of the roles, and the scope.

        Raises: UnauthorizedError, PermissionDeniedError, RefusedError, NodeUnavailableError.
        """
        token = token_of(request)
        if not token:
            raise UnauthorizedError("an Authorization header is missing: Bearer <key>")
        return check(await self._of(request, token), roles, scope)

    async def principal_of(self, request: web.Request) -> Principal | None:
        """The caller, if what is presented is valid, and that can be known."""
        try:
            return await self._of(request, token_of(request))
        except (UnauthorizedError, NodeUnavailableError, RefusedError):
            return None

    async def _of(self, request: web.Request, token: str) -> Principal | None:
        if not is_user_token(token):
            return self._keys.authenticate(token)
        key = digest_of(token)
        known = self._known.get(key)
        if known is not None and known.until > self._clock():
            self._known.move_to_end(key)
            return known.principal
        news = self._news
        principal = await self._asked(_headers(request, token))
        if news == self._news:
            self._keep(key, principal)
        return principal

    async def _asked(self, headers: Headers) -> Principal:
        """Who a node says that it is. Raises: RefusedError, NodeUnavailableError."""
        for member in self._members.some(_TRIES):
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    return await _ask(member, headers)
            except (NoAnswerError, TooLongError, TimeoutError):
                continue
        raise NodeUnavailableError(
            "no node of the cluster says who has signed in: try again", retry_after=RETRY_SECONDS
        )

    def _keep(self, key: bytes, principal: Principal) -> None:
        seconds = KNOWN_SECONDS
        if principal.expires_at is not None:
            seconds = min(seconds, (principal.expires_at - self._now()).total_seconds())
        self._known[key] = _Known(principal, self._clock() + seconds)
        self._known.move_to_end(key)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)

    def _forget(self) -> None:
        self._known.clear()
        self._news += 1


async def _ask(member: Member, headers: Headers) -> Principal:
    """Raises: RefusedError, NoAnswerError, TooLongError."""
    async with asked_of(member, "GET", _PATH, headers) as answer:
        if answer.status in _REFUSALS:
            raise RefusedError(await refusal_of(answer))
        try:
            said = await read_answer(answer, _MOST_BYTES)
            return _principal(Caller.model_validate(said, extra="allow", context=READER))
        except (RefusedError, ValueError):
            # Such as a node of a version that can't be asked this.
            raise NoAnswerError from None
    raise NoAnswerError


def _principal(caller: Caller) -> Principal:
    """Raises: ValueError."""
    role = Role(caller.role)
    if role is Role.HANDLE:
        raise ValueError("a handle is no user")
    return Principal(
        caller.name,
        role,
        owner=caller.owner,
        bounds=KeyBounds(max_level=caller.max_level),
        expires_at=caller.expires_at,
        scopes=None if caller.scopes is None else frozenset(caller.scopes),
    )


def _headers(request: web.Request, token: str) -> Headers:
    """Those of the request, with the token where the API has it, whichever face was asked."""
    sent = for_asking([*request.headers.items()], request.remote or "", request.scheme)
    credentials = ("authorization", "x-api-key", "x-access-token")
    others = [pair for pair in sent if pair[0].lower() not in credentials]
    return [*others, ("Authorization", f"Bearer {token}")]

"""Who asks for something inside which sandbox, and as which user."""

import base64
import binascii
import hmac
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web

from api.compat.call import Call
from api.compat.e2b.credential import credential
from api.compat.e2b.inside.codes import GoneError
from api.compat.e2b.inside.entries import OWNER
from api.compat.e2b.inside.paths import inner
from api.compat.e2b.inside.signature import Signed, signer
from api.compat.e2b.inside.tokens import Tokens
from api.shape.answers import Event
from api.shape.context import Context, Kept
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import (
    NotFoundError,
    PermissionDeniedError,
    UnauthorizedError,
    ValidationError,
)
from orchestrator.rules.access.keys import Role, digest, is_handle
from orchestrator.rules.policy.levels import ROOT
from orchestrator.settings.e2b_names import SANDBOX_HEADER
from orchestrator.state.session import Session
from paddock.contract.words import Status

# The interpreter's clients have no other credential than the one for what a sandbox serves.
_TRAFFIC = "E2B-Traffic-Access-Token"
_OPERATIONS = {"GET": "read", "HEAD": "read", "POST": "write"}


@dataclass(frozen=True, slots=True)
class Inside:
    """A call of a caller who may use the session."""

    call: Call
    context: Context
    session: Session

    @property
    def plane(self) -> ControlPlane:
        """The instance."""
        return self.call.plane

    @property
    def user(self) -> str:
        """The session's only user, as these clients call it."""
        return ROOT if self.session.level.user == ROOT else OWNER

    @property
    def workspace(self) -> str:
        """Where the session has its workspace."""
        return self.session.workspace_path

    def path(self, path: str) -> str:
        """A path of the caller's in the form of this API."""
        return inner(path, self.workspace)

    def kept(self) -> AbstractAsyncContextManager[None]:
        """Keeps the session's sandbox meanwhile; one that is suspended is restored first."""
        suspensions = self.context.shared.sessions.suspensions
        return suspensions.using(self.context.principal, self.session)

    async def done(self, handler: Callable[..., Any], **inputs: Any) -> Any:
        """The answer of an operation in the session, as `Call.done` has it."""
        return await self.call.done(handler, context=self.context, **inputs)

    @asynccontextmanager
    async def following(
        self, handler: Callable[..., Any], **inputs: Any
    ) -> AsyncGenerator[AsyncGenerator[Event | None]]:
        """The events of an operation in the session, as they happen."""
        context = replace(self.context, wants_events=True)
        async with self.call.doing(handler, context=context, **inputs) as answer:
            with answer.held:
                async with aclosing(answer.events) as events:
                    yield events


def inside_credential(request: web.Request, plane: ControlPlane, kept: Kept) -> str:
    """The handle or key of a call inside a sandbox, or with which its address is signed.

    Raises: UnauthorizedError; GoneError for the handle of a session that has ended.
    """
    tokens = kept.of(Tokens)
    traffic = request.headers.getall(_TRAFFIC, [])
    if "signature" in request.query and request.path.endswith("/files"):
        token = _signer(request, tokens, request.method)
    elif len(traffic) == 1 and traffic[0].strip() and "X-Access-Token" not in request.headers:
        token = traffic[0].strip()
    else:
        token = credential(request, inside=True)
    if is_handle(token):
        session = plane.sessions.finder.by_handle(digest(token))
        if session is not None:
            tokens.note(session, token)
        elif tokens.is_gone(token) or _was_its(plane, request, token):
            raise GoneError(request.headers.get(SANDBOX_HEADER, ""))
    return token


def _was_its(plane: ControlPlane, request: web.Request, token: str) -> bool:
    """Whether it was the handle of the session that is named, which has ended."""
    session = plane.sessions.registry.get(request.headers.get(SANDBOX_HEADER, ""))
    if session is None or session.live:
        return False
    return hmac.compare_digest(session.handle_sha256, digest(token))


def signed_credential(request: web.Request, plane: ControlPlane, kept: Kept) -> str:
    """The handle with which an address is signed.

    Raises: NotFoundError for an address that is not; as `inside_credential`.
    """
    if "signature" not in request.query:
        raise NotFoundError("there is nothing at this path")
    return inside_credential(request, plane, kept)


def signer_credential(request: web.Request, plane: ControlPlane, kept: Kept) -> str:
    """The handle with which an address is signed that is to be used with the method of the query.

    Raises: NotFoundError if it is none of this instance.
    """
    try:
        return _signer(request, kept.of(Tokens), request.query.get("method", ""))
    except UnauthorizedError:
        raise NotFoundError("no sandbox of this instance has signed this") from None


def _signer(request: web.Request, tokens: Tokens, method: str) -> str:
    query = request.query
    signed = Signed(
        query.get("path", ""),
        _OPERATIONS.get(method, ""),
        query.get("username", ""),
        query.get("signature", ""),
        query.get("signature_expiration"),
    )
    return signer(signed, tokens.live(request.headers.get(SANDBOX_HEADER)), time.time())


def enter(call: Call) -> Inside:
    """The session that a call is meant for.

    Raises: ValidationError if it names none; GoneError if there is no such session, or it has
    ended or is paused; UnauthorizedError for the handle of another session.
    """
    principal = call.context.principal
    given = call.request.headers.getall(SANDBOX_HEADER, [])
    if len(given) > 1:
        raise ValidationError(f"the header {SANDBOX_HEADER} is given twice", field=SANDBOX_HEADER)
    is_own = principal.role is Role.HANDLE
    if given:
        session_id = given[0]
    elif is_own:
        session_id = principal.name.removeprefix("handle:")
    else:
        raise ValidationError(
            f"the header {SANDBOX_HEADER} must name a sandbox", field=SANDBOX_HEADER
        )
    context = call.in_session(session_id)
    try:
        session = context.session()
    except NotFoundError:
        if is_own:
            raise UnauthorizedError("the access token is another sandbox's") from None
        raise GoneError(session_id) from None
    if not session.live or session.status is Status.PAUSED:
        raise GoneError(session_id)
    inside = Inside(call, context, session)
    check_user(call.request, inside.user)
    return inside


def check_user(request: web.Request, user: str) -> None:
    """Checks the user that a call names; `user` is the session's only one.

    Raises: UnauthorizedError, PermissionDeniedError.
    """
    name = request.query.get("username") or _basic(request)
    if name == ROOT != user:
        raise PermissionDeniedError(
            "nothing runs as root in this session: leave the user out, or use a session at a level "
            'whose file has user = "root"'
        )
    if name not in ("", OWNER, ROOT):
        raise UnauthorizedError(f"invalid username: '{name[:64]}'")


def _basic(request: web.Request) -> str:
    for value in request.headers.getall("Authorization", []):
        scheme, _, given = value.partition(" ")
        if scheme.lower() != "basic":
            continue
        try:
            return base64.b64decode(given.strip(), validate=True).decode().partition(":")[0]
        except (binascii.Error, ValueError):
            raise UnauthorizedError("Authorization: Basic must name a user") from None
    return ""

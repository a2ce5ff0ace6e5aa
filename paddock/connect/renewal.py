"""Keeps the token of a context fresh, with what its issuer gave for that."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from paddock.connect.contexts import Context, Renewal, contexts_path, load_contexts, save_contexts
from paddock.connect.errors import NoAddressError

# A token is replaced so long before it expires.
_EARLY_SECONDS = 30.0


class ContextToken:
    """The token of a context, for a client that works for longer than it is valid."""

    def __init__(self, name: str) -> None:
        """Renews it first, if that is due. Raises: NoAddressError."""
        self._name = name
        self._known = renewed(name)

    @property
    def key(self) -> str:
        """The token as it is now."""
        return self._known.key

    @property
    def due(self) -> float:
        """When it must be renewed, in seconds since 1970; infinity: never."""
        renewal = self._known.renewal
        return float("inf") if renewal is None else renewal.until - _EARLY_SECONDS

    def renew(self) -> None:
        """Renews it, unless another program has. Raises: NoAddressError."""
        self._known = renewed(self._name)


def renewed(name: str) -> Context:
    """The context, whose token is replaced and stored if it is about to expire.

    Raises: NoAddressError if its user must sign in again.
    """
    known = load_contexts().named(name)
    if not _is_due(known):
        return known
    # A refresh token may be used once, whatever runs beside this.
    with _alone():
        contexts = load_contexts()
        context = contexts.named(name)
        if context.renewal is None or not _is_due(context):
            return context
        fresh = _asked(context, context.renewal)
        save_contexts(replace(contexts, by_name={**contexts.by_name, name: fresh}))
        return fresh


def context_of(url: str, answer: dict[str, Any], renewal: Renewal) -> Context:
    """The context that an issuer's answer makes. Raises: NoAddressError."""
    token = answer.get("id_token" if renewal.uses_id_token else "access_token")
    refresh = answer.get("refresh_token", renewal.refresh_token)
    seconds = answer.get("expires_in", 300)
    if not isinstance(token, str) or not isinstance(seconds, int | float):
        raise NoAddressError("the issuer's answer has no token", "tell the operator")
    until = time.time() + seconds
    kept = replace(renewal, refresh_token=refresh, until=until) if refresh else None
    return Context(url, token, kept)


def _is_due(context: Context) -> bool:
    renewal = context.renewal
    return renewal is not None and renewal.until - _EARLY_SECONDS < time.time()


def _asked(context: Context, renewal: Renewal) -> Context:
    # Only contexts of sign-ins need it.
    from paddock.connect.issuer import RefusedError, post_form

    form = {
        "grant_type": "refresh_token",
        "refresh_token": renewal.refresh_token,
        "client_id": renewal.client_id,
        **({} if renewal.resource is None else {"resource": renewal.resource}),
    }
    try:
        answer = post_form(renewal.token_endpoint, form)
    except RefusedError:
        raise NoAddressError(
            "the sign-in has ended", f"`paddock login {context.url} --sso` signs in again"
        ) from None
    return context_of(context.url, answer, renewal)


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time; the lock ends with the block, or with the process."""
    path = contexts_path().with_name(".contexts.lock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)

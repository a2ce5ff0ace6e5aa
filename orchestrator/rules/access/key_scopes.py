"""Scopes of API keys: what narrows a key's role down to operations. Pure functions."""

from orchestrator.ground.errors import PermissionDeniedError

KEY_SCOPE = "key-scope"

# The scopes that a key has; None: everything that its role may do.
Scopes = frozenset[str] | None


def check_scope(scopes: Scopes, scope: str | None) -> None:
    """Raises: PermissionDeniedError that names the scope, if it is missing.

    `scope` is None for what asks for no credential.
    """
    if scope is None or scopes is None or scope in scopes:
        return
    raise PermissionDeniedError(
        f"this key lacks the scope {scope}: use a key that has it, or let an admin make one",
        rule=KEY_SCOPE,
        scope=scope,
    )


def covers(scopes: Scopes, others: Scopes) -> bool:
    """Whether who has `scopes` may hand out `others`, which are not more."""
    return scopes is None or (others is not None and others <= scopes)


def check_covers(scopes: Scopes, others: Scopes) -> None:
    """Raises: PermissionDeniedError if `others` are more than `scopes`."""
    if covers(scopes, others):
        return
    missing = min(others - (scopes or frozenset())) if others is not None else None
    raise PermissionDeniedError(
        "this key can't hand out more than its own scopes"
        + (": the other has all that its role permits" if missing is None else f": not {missing}"),
        rule=KEY_SCOPE,
        scope=missing,
    )

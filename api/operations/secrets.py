"""Secrets that only the proxy has: set, listed and removed, never shown."""

import re

from pydantic import SecretStr
from pydantic import ValidationError as SchemaError

from api.shape import stops
from api.shape.access import Access
from api.shape.context import Context
from api.shape.operation import SESSION, operation
from api.views.secrets import secret, variables
from orchestrator.ground.errors import PermissionDeniedError, ValidationError
from orchestrator.record.secrets.proxy_secrets import ProxySecrets
from orchestrator.rules.access.keys import KeyRing, Role
from orchestrator.rules.policy.levels import Levels
from orchestrator.settings.operator_secrets import SecretUse, unknown_level
from orchestrator.settings.schema_errors import reason
from orchestrator.state.secret import Holder
from paddock.contract.secrets import Secret, SecretBody, SecretQuery, Secrets
from paddock.contract.words import OUTSIDE_NAME

_TAG = "Secrets"
_SECRETS = "/api/secrets"
_OF_SESSION = SESSION + "/secrets"
_EXAMPLES = {
    "llm": {
        "value": "sk-0123456789abcdef",
        "hosts": ["api.openai.com"],
        "variable": "OPENAI_API_KEY",
    }
}


@operation(
    "GET",
    _SECRETS,
    Access.READ_ALL,
    tag=_TAG,
    summary="List secrets",
    answers="The secrets, without their values.",
)
async def list_secrets(context: Context, secrets: ProxySecrets) -> Secrets:
    """The secrets of the instance and of keys that concern the caller's sessions."""
    found = secrets.visible_to(context.principal)
    return Secrets(items=[secret(each) for each in found], next=None)


@operation(
    "PUT",
    _SECRETS + "/{name}",
    Access.MANAGE,
    tag=_TAG,
    summary="Set a secret",
    answers="The secret, without its value.",
    errors=("conflict", "capacity_exhausted", "cluster_unavailable"),
    examples=_EXAMPLES,
)
async def set_secret(
    context: Context,
    keys: KeyRing,
    secrets: ProxySecrets,
    levels: Levels,
    name: str,
    query: SecretQuery,
    body: SecretBody,
) -> Secret:
    """Sets a secret for all sessions of a key, or of the instance, from the next request on.

    An earlier one of that name is replaced. The proxy puts it into requests that have
    `paddock:NAME` in one of the header fields, for its hosts only.
    """
    holder = _holder(context, query)
    if holder.key and keys.named(holder.key) is None:
        raise ValidationError(f"there is no key {holder.key}", field="key")
    use = _use(levels, body)
    found = await context.work.complete(
        secrets.set(context.principal, holder, _name(name), use, SecretStr(body.value))
    )
    return secret(found)


@operation(
    "DELETE",
    _SECRETS + "/{name}",
    Access.MANAGE,
    tag=_TAG,
    summary="Remove a secret",
    answers="The secret as it was.",
    errors=("not_found", "cluster_unavailable"),
    stops=stops.removes_secret,
)
async def remove_secret(
    context: Context, secrets: ProxySecrets, name: str, query: SecretQuery
) -> Secret:
    """No later request has the value.

    This holds even if it can't be recorded now: the answer is 503 `audit_unavailable`, and the
    request is to be repeated.
    """
    removing = secrets.remove(context.principal, _holder(context, query), name)
    return secret(await context.work.complete(removing))


@operation(
    "GET",
    _OF_SESSION,
    Access.READ,
    tag=_TAG,
    summary="List a session's secrets",
    answers="The secrets, without their values.",
)
async def list_session_secrets(context: Context, secrets: ProxySecrets) -> Secrets:
    """What the session's requests may name, whoever set it, and the secret variables of commands.

    Of several with one name, it is the session's own, else its key's, else the instance's.
    """
    session = context.session()
    found = secrets.of_session(session) if session.live else []
    items = [*(secret(each, session) for each in found), *variables(session)]
    return Secrets(items=items, next=None)


@operation(
    "PUT",
    _OF_SESSION + "/{name}",
    Access.MANAGE,
    tag=_TAG,
    summary="Set a secret of one session",
    answers="The secret, without its value.",
    errors=("session_terminated", "conflict"),
    examples=_EXAMPLES,
)
async def set_session_secret(
    context: Context, secrets: ProxySecrets, levels: Levels, name: str, body: SecretBody
) -> Secret:
    """Sets a secret for this session alone, from its next request on. It ends with the session."""
    session, use = context.session(), _use(levels, body)
    found = await context.work.complete(
        secrets.set(context.principal, session, _name(name), use, SecretStr(body.value))
    )
    return secret(found, session)


@operation(
    "DELETE",
    _OF_SESSION + "/{name}",
    Access.MANAGE,
    tag=_TAG,
    summary="Remove a secret of one session",
    answers="The secret as it was.",
    stops=stops.removes_session_secret,
)
async def remove_session_secret(context: Context, secrets: ProxySecrets, name: str) -> Secret:
    """No later request has the value; see `remove_secret`."""
    session = context.session()
    removing = secrets.remove(context.principal, session, name)
    return secret(await context.work.complete(removing), session)


def _holder(context: Context, query: SecretQuery) -> Holder:
    """Whose secret is meant. Raises: PermissionDeniedError."""
    principal = context.principal
    if principal.role is Role.ADMIN:
        return Holder(query.key or "")
    if query.key not in (None, principal.name):
        raise PermissionDeniedError("only an admin may set secrets of other keys", field="key")
    return Holder(principal.name)


def _name(name: str) -> str:
    """Raises: ValidationError."""
    if not re.fullmatch(OUTSIDE_NAME, name):
        raise ValidationError(
            "name must be of lower-case letters, digits, _ and -, at most 64", field="name"
        )
    return name


def _use(levels: Levels, body: SecretBody) -> SecretUse:
    """Raises: ValidationError naming the field."""
    given = body.model_dump(exclude={"value"}, exclude_none=True)
    try:
        use = SecretUse.model_validate(given)
    except SchemaError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(map(str, first["loc"]))
        problem = reason(first["type"], first["msg"])
        raise ValidationError(f"{field} {problem}", field=field) from None
    if (unknown := unknown_level(use, levels)) is not None:
        field, problem = unknown
        raise ValidationError(f"{field} {problem}", field=field)
    return use

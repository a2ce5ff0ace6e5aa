"""Which hooks a caller may add, and whether anything may still be sent to one."""

from collections.abc import Iterable
from typing import NamedTuple

from pydantic import SecretStr

from orchestrator.ground.errors import ConflictError, PermissionDeniedError, ValidationError
from orchestrator.operate.hooks.hook import Hook, beneath
from orchestrator.rules.access.break_glass import BreakGlass
from orchestrator.rules.access.keys import ADMIN_NAME, KeyRing, Principal, Role
from orchestrator.settings.operator_hooks import (
    OperatorHook,
    checked_hook_url,
    load_hook_secret,
)
from paddock.contract.words import HookEvent

# Added over the API: by one key, or by all admins; and by all together.
MOST_OF_KEY = 10
MOST_HOOKS = 100


class WantedHook(NamedTuple):
    """A hook that a caller wants. `secret` None: one is made; `key` None: all sessions."""

    url: str
    events: tuple[HookEvent, ...]
    key: str | None
    secret: SecretStr | None


class HookRules:
    """Admins' hooks send anywhere, about any session; the operator limits other keys' hooks."""

    def __init__(self, keys: KeyRing, prefixes: tuple[str, ...], glass: BreakGlass) -> None:
        """`prefixes` are the URLs to which hooks of other keys than admins' may send."""
        self._glass = glass
        self._keys = keys
        self._prefixes = prefixes

    def check(self, wanted: WantedHook, managed_by: str | None) -> None:
        """Raises: ValidationError, PermissionDeniedError."""
        try:
            checked_hook_url(wanted.url)
        except ValueError as error:
            raise ValidationError(f"url {error}", field="url") from None
        if managed_by is None:
            if wanted.key not in (None, ADMIN_NAME) and self._keys.named(wanted.key or "") is None:
                raise ValidationError(f"there is no key {wanted.key}", field="key")
            return
        if wanted.key not in (None, managed_by):
            raise PermissionDeniedError(
                "only an admin may add hooks for sessions of other keys", field="key"
            )
        if not beneath(wanted.url, self._prefixes):
            permitted = ", ".join(self._prefixes) or "none"
            raise PermissionDeniedError(
                f"the operator does not permit hooks at this URL; permitted: {permitted}",
                field="url",
            )

    def is_whole(self, hook: Hook) -> bool:
        """Whether its messages have what sessions contain.

        Hooks that admins have added have not, where admins need break-glass access.
        """
        return hook.managed_by is not None or hook.configured or not self._glass.required

    def refusal(self, hook: Hook) -> str | None:
        """Why nothing may be sent to it now; None: it may. What permitted a hook may be gone."""
        if hook.managed_by is None:
            return None
        known = self._keys.named(hook.managed_by)
        if known is None or self._keys.current(known) is None or known.role is not Role.OPERATOR:
            return f"the key {hook.managed_by} is not valid any more"
        if not beneath(hook.url, self._prefixes):
            return "the operator does not permit hooks at this URL any more"
        return None


def manager_of(principal: Principal) -> str | None:
    """The key that manages the hooks which the caller adds; None: admins."""
    return None if principal.role is Role.ADMIN else principal.name


def may_see(principal: Principal, hook: Hook) -> bool:
    """Whether the caller sees and removes it."""
    if principal.role is Role.ADMIN:
        return True
    return principal.role is Role.OPERATOR and hook.managed_by == principal.name


def check_count(hooks: Iterable[Hook], managed_by: str | None) -> None:
    """Raises: ConflictError if there are too many for another one."""
    added = [hook for hook in hooks if not hook.configured]
    own = sum(hook.managed_by == managed_by for hook in added)
    if len(added) >= MOST_HOOKS or (managed_by is not None and own >= MOST_OF_KEY):
        most = MOST_HOOKS if len(added) >= MOST_HOOKS else MOST_OF_KEY
        raise ConflictError(
            f"there are {most} hooks already, which is the maximum: remove one",
            reason="too_many_hooks",
        )


def configured_hook(name: str, hook: OperatorHook, created: str) -> Hook:
    """A hook of the operator's configuration. Raises: ConfigError."""
    return Hook(
        id=name,
        url=hook.url,
        events=hook.events,
        key=hook.key,
        managed_by=None,
        set_by=None,
        created_at=created,
        secret=load_hook_secret(name, hook),
        configured=True,
    )

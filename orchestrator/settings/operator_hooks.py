"""The operator's list of hooks: the events that each sends, of whose sessions, and to which URL."""

import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from orchestrator.settings.operator_files import read_secret
from orchestrator.settings.value_types import Secret
from orchestrator.settings.values import check_secret, endpoint_parts
from paddock.contract.words import HOOK_URL, OUTSIDE_NAME, HookEvent

MOST_CONFIGURED = 50
_MOST_SECRET_BYTES = 4096
# Ids of hooks that clients add begin with it.
HOOK_PREFIX = "hook-"


def checked_hook_url(value: str) -> str:
    """Returns it. Raises: ValueError."""
    if len(value) > HOOK_URL:
        raise ValueError(f"may have at most {HOOK_URL} characters")
    if endpoint_parts(value).fragment:
        raise ValueError("must not have a fragment")
    return value


class OperatorHook(BaseModel):
    """A hook: its URL, its events, and the key of its sessions."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: Annotated[str, AfterValidator(checked_hook_url)]
    secret: Secret | None = None
    secret_file: Path | None = None
    events: Annotated[tuple[HookEvent, ...], Field(min_length=1, max_length=16)]
    # None: all sessions.
    key: Annotated[str, Field(min_length=1, max_length=64)] | None = None

    @model_validator(mode="after")
    def _one_secret(self) -> Self:
        if (self.secret is None) == (self.secret_file is None):
            raise ValueError("must have either secret or secret_file")
        return self


def checked_hooks(hooks: dict[str, OperatorHook]) -> dict[str, OperatorHook]:
    """Returns them. Raises: ValueError for their number, or for a name."""
    if len(hooks) > MOST_CONFIGURED:
        raise ValueError(f"there may be at most {MOST_CONFIGURED}")
    for name in hooks:
        if not re.fullmatch(OUTSIDE_NAME, name) or name.startswith(HOOK_PREFIX):
            raise ValueError(
                f"{name[:64]!r} is not a name of lower-case letters, digits, _ and -, or begins "
                f"with {HOOK_PREFIX}"
            )
    return hooks


def load_hook_secret(name: str, hook: OperatorHook) -> SecretStr:
    """Its secret; may block. Raises: ConfigError that does not contain it."""
    if hook.secret is not None:
        return hook.secret
    path = hook.secret_file or Path()
    return read_secret(f"hooks: {name}", path, check_secret, _MOST_SECRET_BYTES)

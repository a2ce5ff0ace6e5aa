"""The API keys of the settings: the admin key and the entries of the keys file."""

from dataclasses import fields
from datetime import UTC
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from tomlkit.exceptions import TOMLKitError

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.limits import LIMIT_FIELDS, REQUESTS, KeyLimits
from orchestrator.rules.access.admin_key import ADMIN_KEY_FILE, generated_key
from orchestrator.rules.access.key_bounds import KeyBounds
from orchestrator.rules.access.keys import (
    ADMIN_NAME,
    NAME_PATTERN,
    KeyRing,
    OldSecret,
    Principal,
    Role,
    digest,
)
from orchestrator.rules.policy.toml_lines import Field as Place
from orchestrator.rules.policy.toml_lines import line_of, read_document
from orchestrator.settings.operator_files import read_toml
from orchestrator.settings.schema_errors import place, reason
from orchestrator.settings.settings import Settings, ensure_state_dir
from orchestrator.settings.values import IMAGE_PATTERN
from paddock.contract.scopes import check_scopes
from paddock.contract.words import LEVEL_PATTERN, MAX_WALL_SECONDS

_Name = Annotated[str, Field(pattern=f"^{NAME_PATTERN}$")]
_Count = Annotated[int, Field(ge=0)]
_Seconds = Annotated[int, Field(ge=1)]
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Image = Annotated[str, Field(pattern=f"^{IMAGE_PATTERN}$")]
_Tool = Annotated[str, Field(min_length=1, max_length=128)]
_BOUND_FIELDS = tuple(field.name for field in fields(KeyBounds))
# The fields that every entry may have, and the others by role.
_FIELDS_OF_ALL = frozenset({"name", "role", "sha256", "old_sha256", "old_until"})
_FIELDS_OF_ROLES: dict[Role, frozenset[str]] = {
    Role.ADMIN: frozenset({REQUESTS, "handle_requests_per_second", "expires_at", "scopes"}),
    Role.OPERATOR: frozenset({*LIMIT_FIELDS, *_BOUND_FIELDS, "expires_at", "scopes"}),
    Role.VIEWER: frozenset({REQUESTS, "expires_at", "owner", "scope", "scopes"}),
    Role.METRICS: frozenset({REQUESTS, "expires_at", "scopes"}),
}


class _FieldError(ValueError):
    """An entry is malformed at that place."""

    def __init__(self, where: Place, why: str) -> None:
        super().__init__(f"{'.'.join(map(str, where))} {why}".strip())
        self.place = where


class KeyEntry(BaseModel):
    """One `[[keys]]` table of the keys file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    name: _Name
    role: Literal["admin", "operator", "viewer", "metrics"]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    max_sessions: _Count | None = None
    max_cpus: _Amount | None = None
    max_memory_bytes: _Count | None = None
    max_workspaces: _Count | None = None
    max_workspace_bytes: _Count | None = None
    requests_per_second: _Rate | None = None
    handle_requests_per_second: _Rate | None = None
    max_audit_bytes: _Count | None = None
    max_egress_bytes_per_day: _Count | None = None
    max_level: Annotated[str, Field(pattern=f"^{LEVEL_PATTERN}$")] | None = None
    images: Annotated[list[_Image], Field(min_length=1)] | None = None
    tools: list[_Tool] | None = None
    max_idle_timeout: _Seconds | None = None
    max_wall_timeout: Annotated[_Seconds, Field(le=MAX_WALL_SECONDS)] | None = None
    expires_at: Annotated[AwareDatetime, AfterValidator(lambda at: at.astimezone(UTC))] | None = (
        None
    )
    # The secret before the last rotation, and until when it is valid.
    old_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    old_until: Annotated[AwareDatetime, AfterValidator(lambda at: at.astimezone(UTC))] | None = None
    # For a viewer: the owner whose sessions it reads, or `all`.
    owner: _Name | None = None
    scope: Literal["all"] | None = None
    # What the key may do of what its role may; by default all of it.
    scopes: Annotated[list[str], Field(min_length=1, max_length=64)] | None = None

    @field_validator("scopes")
    @classmethod
    def _check_scopes(cls, scopes: list[str] | None) -> list[str] | None:
        check_scopes(scopes or ())
        return scopes

    @model_validator(mode="after")
    def _check_role(self) -> Self:
        role = Role(self.role)
        for name in self.model_fields_set - _FIELDS_OF_ALL:
            if name not in _FIELDS_OF_ROLES[role]:
                raise ValueError(f"{name} is not for a key with the role {role}")
        if role is Role.VIEWER and (self.owner is None) == (self.scope is None):
            raise ValueError(
                'a viewer needs either owner, the key whose sessions it reads, or scope = "all"'
            )
        if (self.old_sha256 is None) != (self.old_until is None):
            raise ValueError("old_sha256 and old_until belong together")
        return self

    @property
    def _old(self) -> OldSecret | None:
        if self.old_sha256 is None or self.old_until is None:
            return None
        return OldSecret(self.old_sha256, self.old_until)

    def principal(self) -> Principal:
        """The principal that the key stands for."""
        return Principal(
            self.name,
            Role(self.role),
            owner=self.owner,
            limits=KeyLimits(**{name: getattr(self, name) for name in LIMIT_FIELDS}),
            bounds=KeyBounds(**{name: _frozen(getattr(self, name)) for name in _BOUND_FIELDS}),
            expires_at=self.expires_at,
            scopes=None if self.scopes is None else frozenset(self.scopes),
            old=self._old,
        )


def load_keys(settings: Settings) -> KeyRing:
    """The admin key (configured, or created at the first start) and the keys of the keys file.

    Raises: ConfigError that names the file and the entry.
    """
    key_file = None
    if settings.admin_key is not None:
        secret = settings.admin_key.get_secret_value()
    else:
        ensure_state_dir(settings.state_dir)
        key_file = settings.state_dir / ADMIN_KEY_FILE
        secret = generated_key(key_file)
    principals = {digest(secret): Principal(ADMIN_NAME, Role.ADMIN)}
    # The default file is optional; a configured one is not.
    if settings.keys_file is not None or settings.keys_path.exists():
        add_entries(settings.keys_path, read_toml(settings.keys_path), principals)
    return KeyRing(principals, key_file)


def add_entries(path: Path, table: dict[str, Any], principals: dict[str, Principal]) -> None:
    """Adds the keys of a keys file's table to `principals`, a mapping by digest.

    Raises: ConfigError that names the file and the entry.
    """
    entries = table.get("keys", [])
    for name in table.keys() - {"keys"}:
        raise ConfigError(f"{path}: {name}: no such field")
    if not isinstance(entries, list):
        raise ConfigError(f"{path}: keys must be an array of tables, [[keys]]")
    for number, value in enumerate(entries, 1):
        try:
            _add(_entry(value), principals)
        except ValueError as error:
            where = _line(path, number, error.place if isinstance(error, _FieldError) else ())
            raise ConfigError(f"{path}: keys entry {number}: {error}{where}") from None


def _line(path: Path, number: int, field: Place) -> str:
    """Where the entry's field is in the file, or the entry, if that can be told."""
    try:
        return f" (line {line_of(read_document(path).text, ('keys', number - 1, *field))})"
    except (ConfigError, TOMLKitError, LookupError):
        return ""


def parse_key(members: dict[str, Any]) -> Principal:
    """The key of an entry's members without its hash. Raises: ValueError that names the member."""
    return _entry({**members, "sha256": digest("")}).principal()


def table(principal: Principal, sha256: str) -> dict[str, Any]:
    """The members of a key's `[[keys]]` table."""
    bounds = {name: getattr(principal.bounds, name) for name in _BOUND_FIELDS}
    members: dict[str, Any] = {
        "name": principal.name,
        "role": str(principal.role),
        "sha256": sha256,
        **{name: getattr(principal.limits, name) for name in LIMIT_FIELDS},
        **{
            name: list(bound) if isinstance(bound, tuple) else bound
            for name, bound in bounds.items()
        },
        "expires_at": principal.expires_at,
        "owner": principal.owner,
        "scope": "all" if principal.role is Role.VIEWER and principal.owner is None else None,
        "scopes": None if principal.scopes is None else sorted(principal.scopes),
        "old_sha256": None if principal.old is None else principal.old.sha256,
        "old_until": None if principal.old is None else principal.old.until,
    }
    return {name: value for name, value in members.items() if value is not None}


def _entry(value: object) -> KeyEntry:
    """Raises ValueError that names the field."""
    if not isinstance(value, dict):
        raise ValueError("must be a table")
    try:
        return KeyEntry.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise _FieldError(place(first["loc"]), reason(first["type"], first["msg"])) from None


def _add(entry: KeyEntry, principals: dict[str, Principal]) -> None:
    if entry.name in (ADMIN_NAME, *(known.name for known in principals.values())):
        raise ValueError(f"name {entry.name!r} is taken")
    used = {*principals, *(known.old.sha256 for known in principals.values() if known.old)}
    for name in ("sha256", "old_sha256"):
        if getattr(entry, name) in used:
            raise ValueError(f"{name} belongs to another key")
    if entry.old_sha256 == entry.sha256:
        raise ValueError("old_sha256 must differ from sha256")
    principals[entry.sha256] = entry.principal()


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value

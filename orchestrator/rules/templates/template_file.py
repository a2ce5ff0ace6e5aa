"""A template's file: its allowed contents, and the places of its errors."""

import hashlib
import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from orchestrator.ground import errors
from orchestrator.ground.config_error import ConfigError
from orchestrator.rules.egress.session_egress import narrowing_of
from orchestrator.rules.policy import toml_lines
from orchestrator.rules.templates.template import Template
from orchestrator.settings.schema_errors import place, reason
from orchestrator.settings.values import IMAGE_PATTERN
from paddock.contract.budget import BudgetBody
from paddock.contract.egress import NarrowingBody
from paddock.contract.fields import MIB, CommandLine, Environment, MaxBytes, ToolName
from paddock.contract.session_requests import LimitsBody
from paddock.contract.words import LEVEL_PATTERN, MAX_WALL_SECONDS, POLICY_PATTERN, TEMPLATE_NAME

_MOST_FILES = 256
_MOST_COMMANDS = 64
_MOST_WARM = 100


def _inside(path: str) -> str:
    parts = path.split("/")
    if path.startswith("/") or any(part in ("", ".", "..") for part in parts) or "\0" in path:
        raise ValueError("must be relative to the workspace, without `.`, `..` and empty parts")
    return path


_Path = Annotated[str, Field(min_length=1), MaxBytes(1024), AfterValidator(_inside)]


class TemplateMembers(BaseModel):
    """The members of a template's file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    description: Annotated[str, Field(max_length=256)] = ""
    image: Annotated[str, Field(pattern=f"^{IMAGE_PATTERN}$")] | None = None
    permission_level: Annotated[str, Field(pattern=f"^{LEVEL_PATTERN}$")] | None = None
    env: Environment = {}
    limits: LimitsBody = Field(default_factory=LimitsBody)
    idle_timeout: int | None = Field(default=None, ge=1)
    wall_timeout: int | None = Field(default=None, ge=1, le=MAX_WALL_SECONDS)
    budget: BudgetBody = Field(default_factory=BudgetBody)
    tools: Annotated[list[ToolName], Field(max_length=128)] | None = None
    egress: NarrowingBody | None = None
    policy: Annotated[str, Field(pattern=f"^{POLICY_PATTERN}$")] | None = None
    files: Annotated[dict[_Path, Annotated[str, MaxBytes(MIB)]], Field(max_length=_MOST_FILES)] = {}
    setup: Annotated[list[CommandLine], Field(max_length=_MOST_COMMANDS)] = []
    warm: int = Field(default=0, ge=0, le=_MOST_WARM)


def read_template_file(path: Path) -> Template:
    """The template of a file. Raises: ConfigError that names the file, the line and the field."""
    if not re.fullmatch(TEMPLATE_NAME, path.stem):
        raise ConfigError(
            f"{path}: a template's name begins with a lower-case letter or a digit and has at most "
            "64 characters of a-z 0-9 . _ -"
        )
    text, values = toml_lines.read_document(path)

    def wrong(where: toml_lines.Field, message: str) -> ConfigError:
        name = ".".join(map(str, where))
        return ConfigError(f"{path}:{toml_lines.line_of(text, where)}: {name}: {message}")

    try:
        table = TemplateMembers.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        first = min(found, key=lambda each: each["type"] == "missing")
        raise wrong(place(first["loc"]), reason(first["type"], first["msg"])) from None
    members = _members(table)
    try:
        if members["egress"] is not None:
            narrowing_of(members["egress"], "egress")
    except errors.ValidationError as error:
        raise wrong(("egress",), error.detail) from None
    return Template(path.stem, hashlib.sha256(text.encode()).hexdigest(), **members)


def _members(table: TemplateMembers) -> dict[str, Any]:
    """The members as a template has them."""
    members = table.model_dump(exclude_none=True)
    found = {name: members.get(name) for name in type(table).model_fields}
    tools = None if table.tools is None else tuple(table.tools)
    return found | {"tools": tools, "setup": tuple(table.setup)}

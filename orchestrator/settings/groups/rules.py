"""Settings of images, levels, tools and approvals."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field
from pydantic_settings import NoDecode

from orchestrator.settings.operator_hooks import OperatorHook, checked_hook_url, checked_hooks
from orchestrator.settings.operator_models import OperatorModel, checked_models
from orchestrator.settings.value_types import (
    AbsolutePath,
    CommaSeparated,
    ImageName,
    LevelName,
    OrJson,
    PlainUrl,
    Url,
)

# Levels that allow any command have the programs that projects need.
_LEVEL_IMAGES = {"high": "paddock/dev:latest"}


class RuleSettings(BaseModel):
    """Settings of images, levels, tools and approvals."""

    image: ImageName = Field(
        default="paddock/sandbox:latest", description="The default sandbox image of sessions."
    )
    level_images: Annotated[dict[LevelName, ImageName], OrJson] | None = Field(
        default=None,
        description="Levels whose sessions have another default image, as `{level: image}`. Unset: "
        '`{"high": "paddock/dev:latest"}`, or none if PADDOCK_IMAGE is set.',
    )
    images: Annotated[tuple[ImageName, ...], NoDecode, CommaSeparated] = Field(
        default=(),
        description="Additional images that sessions may request, comma-separated, besides those "
        "of `paddock images add`.",
    )
    levels_dir: AbsolutePath | None = Field(
        default=None,
        description="Each `NAME.toml` of this directory is a level; it replaces the packaged one "
        "of that name.",
    )
    session_policies_dir: AbsolutePath | None = Field(
        default=None,
        description="Each `NAME.toml` of this directory is a session policy, besides the built-in "
        "SAFE_ANALYSIS, SAFE_EDIT and SAFE_WORK.",
    )
    templates_dir: AbsolutePath | None = Field(
        default=None,
        description="Each `NAME.toml` of this directory is a template, from which sessions are "
        "created.",
    )
    template_timeout: int = Field(
        default=1800,
        ge=1,
        le=86_400,
        description="How long the preparation of a template may take, and how long a new session "
        "waits for it.",
    )
    models: Annotated[
        dict[str, OperatorModel], NoDecode, OrJson, AfterValidator(checked_models)
    ] = Field(
        default={},
        description="Language models that turns may call, by name: "
        '`{"url", "key" or "key_file", "model", "prices": {"input", "output"}, "max_tokens", '
        '"timeout", "limit_field", "send_back", "stream_usage"}`; prices are dollars for a million '
        "tokens.",
    )
    tools_dir: AbsolutePath | None = Field(
        default=None,
        description="Tool manifests, `*.clad.toml`; they replace packaged ones of the same name.",
    )
    scope_file: AbsolutePath | None = Field(
        default=None,
        description="The targets that tools may use: addresses, networks, domains. Unset: none.",
    )
    cedar_dir: AbsolutePath | None = Field(
        default=None,
        description="Cedar policies, `*.cedar`, for input that is sent to tools. Unset: policies "
        "are not evaluated; set: input that no policy permits is denied.",
    )
    ca_file: AbsolutePath | None = Field(
        default=None,
        description="Certificates of authorities, in PEM, that inspected connections of the way "
        "out trust in addition to this host's.",
    )
    pip_index: Url | None = Field(
        default=None,
        description="The index that pip uses in sandboxes with a network, as `PIP_INDEX_URL` of "
        "their commands, unless the level's file sets that.",
    )
    hooks: Annotated[dict[str, OperatorHook], NoDecode, OrJson, AfterValidator(checked_hooks)] = (
        Field(
            default={},
            description="Hooks, by name: URLs that receive a POST for each event of sessions: "
            '`{"url", "secret" or "secret_file", "events", "key"}`.',
        )
    )
    hook_prefixes: Annotated[
        tuple[Annotated[str, AfterValidator(checked_hook_url)], ...],
        NoDecode,
        CommaSeparated,
    ] = Field(
        default=(),
        description="Beginnings of URLs to which operators' keys may add hooks, comma-separated, "
        "as `https://host/path/`. Unset: only admins add hooks.",
    )

    tool_urls: Annotated[tuple[PlainUrl, ...], NoDecode, CommaSeparated] = Field(
        default=(),
        description="URLs that hosts may register as tools of runs, comma-separated, with those "
        "below them. Unset: none.",
    )

    @property
    def default_images(self) -> dict[str, str]:
        """The default images of levels that have another one than `image`, by level."""
        if self.level_images is not None:
            return self.level_images
        return {} if "image" in self.model_fields_set else dict(_LEVEL_IMAGES)

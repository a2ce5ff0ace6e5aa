"""Templates: prepared workspaces, from which sessions are created."""

from typing import Annotated, Any, Literal

from pydantic import Field

from paddock.contract.base import Count, Model, Time, example
from paddock.contract.words import TEMPLATE_NAME

TemplateName = Annotated[str, Field(pattern=f"^{TEMPLATE_NAME}$", max_length=64)]
State = Literal["unbuilt", "built", "stale", "building", "failed"]
_TEMPLATE: dict[str, Any] = {
    "name": "website",
    "description": "A page with its tests",
    "state": "built",
    "permission_level": "medium",
    "image": "paddock/sandbox:latest",
    "files": ["src/index.html"],
    "setup": ["mkdir -p build"],
    "digest": "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5",
    "built_at": "2026-03-04T09:30:12.482113Z",
    "size_bytes": 52428800,
    "warm": 2,
    "ready": 1,
    "failure": None,
}


class TemplateFailure(Model):
    """Why a template could not be prepared."""

    error: str
    at: Time
    command: str | None = Field(description="The command that failed; null if none has.")
    exit_code: int | None = Field(description="Null if it was ended by a signal.")
    output: str = Field(description="The first and the last 8 KiB of what it printed.")


class Template(Model):
    """A template of the operator's files, and its prepared workspace."""

    model_config = example(_TEMPLATE)

    name: str
    description: str
    state: State = Field(
        description="`built`: its sessions begin at once. `unbuilt`: it was never prepared, "
        "`stale`: since then its file, image or level has changed; the next session prepares it. "
        "`failed`: `failure` says why.",
    )
    permission_level: str = Field(description="Its sessions' level unless they ask for another.")
    image: str | None = Field(description="Null if its sessions can't have any.")
    files: list[str] = Field(description="The paths of its files in the workspace.")
    setup: list[str] = Field(description="The commands that prepare the workspace, in order.")
    digest: str | None = Field(
        description="The digest of all that goes in: its file, the image and the level."
    )
    built_at: Time | None = Field(description="When the present or an earlier version was built.")
    size_bytes: Count | None = Field(description="What the prepared workspace takes on the disk.")
    warm: Count = Field(description="How many sandboxes are to wait for its sessions.")
    ready: Count = Field(
        description="How many of them wait, with its files: so many sessions take one over."
    )
    failure: TemplateFailure | None


class Templates(Model):
    """The templates by name."""

    model_config = example({"items": [_TEMPLATE], "next": None})

    items: list[Template]
    next: None

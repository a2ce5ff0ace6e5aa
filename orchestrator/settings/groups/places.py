"""Settings of where Paddock keeps its state, workspaces and records, and for how long."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from orchestrator.settings.value_types import AbsolutePath, AnyCase, OrJson, Url


class AnchorSettings(BaseModel):
    """Where heads of chains are anchored: a file, a URL or both."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    file: AbsolutePath | None = None
    url: Url | None = None
    interval: float = Field(default=300, ge=1, le=86_400, allow_inf_nan=False)
    key_file: AbsolutePath | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.file is None and self.url is None:
            raise ValueError("needs a file or a url")
        return self


def _default_workspaces(validated: dict[str, Any]) -> Path:
    """The default directory of visible workspaces."""
    named = os.environ.get("SESSION_WORKSPACES_DIR")
    return Path(named) if named else Path(validated["state_dir"]) / "session-workspaces"


class PlaceSettings(BaseModel):
    """Settings of where Paddock keeps its state, workspaces and records, and for how long."""

    state_dir: AbsolutePath = Field(
        default=Path("data"),
        description="The state directory: database, keys, workspaces and the sandboxes' sockets.",
    )
    workspaces_dir: AbsolutePath = Field(
        default_factory=_default_workspaces,
        description="The directory that shows workspaces under their ids. Unset: "
        "`SESSION_WORKSPACES_DIR`, else `session-workspaces` in the state directory.",
    )
    workspace_quota: Annotated[Literal["auto", "image", "project", "none"], AnyCase] = Field(
        default="auto",
        description="What limits the size of new workspaces: `image`, a separate file system in a "
        "file; `project`, quotas of the host's file system; `none`, nothing. `auto`: the first "
        "that works on this host.",
    )
    workspace_retention: int | None = Field(
        default=None,
        ge=1,
        le=3_153_600_000,
        description="How long after the end of its last session a workspace is purged. "
        "Unset: it is kept until it is purged on request.",
    )
    snapshot_retention: int | None = Field(
        default=None,
        ge=1,
        le=3_153_600_000,
        description="How long after it was taken a named snapshot is removed. Unset: it is kept "
        "until it is removed on request.",
    )
    archive_dir: AbsolutePath | None = Field(
        default=None,
        description="Where chains of ended sessions are archived. Unset: `archive` in the "
        "state directory.",
    )
    audit_retention: int | None = Field(
        default=None,
        ge=60,
        le=3_153_600_000,
        description="How long after the end of a session its audit chain is archived, with its "
        "approvals and the evidence of its terminals. Unset: on request only.",
    )
    anchor: Annotated[AnchorSettings | None, OrJson] = Field(
        default=None,
        description="Where signed heads of audit chains are kept in addition to the ledger: "
        "`file`, to which they are appended, or `url`, to which they are posted; every `interval` "
        "seconds; `key_file`, an Ed25519 key in PEM. Unset: nowhere.",
    )

    @property
    def images_path(self) -> Path:
        """The file of further images that sessions may request, which commands edit."""
        return self.state_dir / "images.toml"

    @property
    def snapshots_path(self) -> Path:
        """The directory of named snapshots."""
        return self.state_dir / "snapshots"

    @property
    def own_dirs(self) -> tuple[Path, ...]:
        """Directories that no sandbox may get."""
        return self.state_dir, self.workspaces_dir, self.archive_path

    @property
    def archive_path(self) -> Path:
        """The directory of archives: the configured one, or one in the state directory."""
        return self.archive_dir or self.state_dir / "archive"

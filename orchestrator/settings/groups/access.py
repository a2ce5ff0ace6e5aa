"""Settings of keys and of their limits."""

from pydantic import BaseModel, Field

from orchestrator.ground.limits import KeyLimits
from orchestrator.settings.value_types import AbsolutePath, Secret


class AccessSettings(BaseModel):
    """Settings of keys and of their limits."""

    keys_file: AbsolutePath | None = Field(
        default=None, description="The keys file. Unset: `keys.toml` in the state directory."
    )
    oidc_file: AbsolutePath | None = Field(
        default=None,
        description="The file of the issuers by which users sign in. Unset: only keys are "
        "accepted.",
    )
    admin_key: Secret | None = Field(
        default=None,
        description="The admin key, at least 16 visible ASCII characters. Unset: one is created at "
        "the first start and kept in `admin.key` in the state directory.",
    )
    break_glass: bool = Field(
        default=False,
        description="Whether an admin's key needs break-glass access, for a reason on record, to "
        "touch the content of other keys' sessions.",
    )
    session_max_streams: int = Field(
        default=64,
        ge=1,
        le=10_000,
        description="Streams that clients may have open for one session: followed events and "
        "output, downloads and uploads.",
    )
    key_max_streams: int = Field(
        default=256,
        ge=1,
        le=100_000,
        description="The same for one key, and again for the handles of its sessions.",
    )
    # The limits of a key whose entry in the keys file does not set them.
    key_max_sessions: int | None = Field(
        default=None, ge=0, description="Live sessions of one key. Unset: no quota."
    )
    key_max_cpus: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="Total cores of a key's live sessions. Unset: no quota.",
    )
    key_max_memory_bytes: int | None = Field(
        default=None,
        ge=0,
        description="Total memory of a key's live sessions. Unset: no quota.",
    )
    # Kept workspaces would fill the disk without a session.
    key_max_workspaces: int = Field(
        default=256, ge=0, description="Workspaces of one key, including kept ones and volumes."
    )
    key_max_workspace_bytes: int = Field(
        default=512 * 1024**3,
        ge=0,
        description="Total size of a key's workspaces, including kept ones and volumes.",
    )
    key_max_snapshots: int = Field(default=100, ge=0, description="Named snapshots of one key.")
    key_max_snapshot_bytes: int = Field(
        default=256 * 1024**3,
        ge=0,
        description="What the named snapshots of one key take on the disk, as if they shared "
        "nothing.",
    )
    key_max_audit_bytes: int | None = Field(
        default=None,
        ge=0,
        description="Total size of a key's sessions in the audit ledger, including ended "
        "ones until they are archived. Unset: no quota.",
    )
    key_max_egress_bytes_per_day: int | None = Field(
        default=None,
        ge=0,
        description="Bytes that a key's sessions move to and from the outside through the way out "
        "on one day, in UTC. Unset: no quota.",
    )
    key_requests_per_second: float = Field(
        default=1000, gt=0, allow_inf_nan=False, description="Requests of one key."
    )
    key_handle_requests_per_second: float = Field(
        default=200,
        gt=0,
        allow_inf_nan=False,
        description="Requests with one session's handle. All handles of a key together may make "
        "as many requests as the key.",
    )
    key_burst_seconds: float = Field(
        default=2,
        gt=0,
        le=3600,
        allow_inf_nan=False,
        description="A key or handle that was idle may make the requests of this many seconds at "
        "once.",
    )

    @property
    def key_limits(self) -> KeyLimits:
        """The limits of a key whose entry sets none."""
        return KeyLimits(
            self.key_max_sessions,
            self.key_max_cpus,
            self.key_max_memory_bytes,
            self.key_max_workspaces,
            self.key_max_workspace_bytes,
            self.key_requests_per_second,
            self.key_handle_requests_per_second,
            self.key_max_audit_bytes,
            self.key_max_egress_bytes_per_day,
        )

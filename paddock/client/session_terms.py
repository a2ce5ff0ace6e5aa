"""What may be asked of a new session."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from paddock.client.packs import pack_body
from paddock.client.requests import check_terms, given
from paddock.contract.packs import ContextPack


class SessionTerms(TypedDict, total=False):
    """The arguments of a new session. None, or none at all, means the default.

    permission_level: low, medium, high, or one of the operator's; None: medium.
    image: the sandbox image; None: its level's default, or the control plane's.
    template: a template of the operator: the session begins with its workspace, and has what it
        names where these terms don't.
    labels: for filtering.
    metadata: your own texts by name, of any characters, 16 KiB in all; on record, for filtering.
    env: variables of all its commands; they are stored, so not for secrets.
    secrets: variables of all its commands that are never stored, and are removed from all records;
        each has 8 bytes or more. If the level lists variables, other names must begin with
        `SECRET_`.
    limits: lower ones than the level's: `cpus`, `memory_bytes`, `pids`, `tmp_bytes`,
        `workspace_bytes`.
    idle_timeout: seconds without work until it is ended or suspended.
    idle_action: `end` or `suspend`: then it keeps its workspace, and has a sandbox again at its
        next use; None: its level's.
    wall_timeout: seconds until it is ended, used or not.
    budget: its total limits: `time` and `cpu_seconds` in seconds, `cost` in dollars, `commands`,
        `output_bytes`, `audit_bytes`, `iterations`, `tokens`, `egress_bytes`.
    mounts: names from the operator's list of mounts, in addition to the level's.
    volumes: volumes of the key, each with its `name`, its absolute `path` in the sandbox, and
        `read_only`, which is false by default: one session at a time can write to a volume.
    workspace_path: where its workspace is in the sandbox, such as `/home/user`; None: `/workspace`.
    role: its agent's role in Cedar policies; None: `agent`.
    tools: the tools that it may open; None: any that its level permits.
    policy: what its turns may do: the name of a session policy, or its members; None:
        `SAFE_ANALYSIS`.
    egress: rules that narrow its way out, as `only` of `Session.egress.set`.
    work_id: your name for the work that it is for; `Sessions.list` finds sessions by it.
    lease_id: your lease of the work, of 8 bytes or more: never stored or shown, and removed from
        all records.
    policy_resolved_ref: your reference to the policy that you have applied.
    episode_id: your name for the episode of the work; see `Session.set_episode`.
    placement: in a cluster, the `labels` of its node, and the session `near` which it is put.
    recovery: `none`: if its node is lost, it is there again when the node is. `snapshot`: another
        node of the cluster goes on with its last copy.
    from_snapshot: the name or the id of one of the key's named snapshots: its workspace begins with
        these files.
    consume: a context pack, as `pack` makes it: the session reads its files, which must be in the
        workspace already, and nothing else of the workspace.
    """

    permission_level: str | None
    image: str | None
    template: str | None
    labels: Mapping[str, str] | None
    metadata: Mapping[str, str] | None
    env: Mapping[str, str] | None
    secrets: Mapping[str, str] | None
    limits: Mapping[str, int | float] | None
    idle_timeout: int | None
    idle_action: str | None
    wall_timeout: int | None
    budget: Mapping[str, int | float] | None
    mounts: Sequence[str] | None
    volumes: Sequence[Mapping[str, str | bool]] | None
    workspace_path: str | None
    role: str | None
    tools: Sequence[str] | None
    policy: str | Mapping[str, Any] | None
    egress: Mapping[str, Any] | None
    work_id: str | None
    lease_id: str | None
    policy_resolved_ref: str | None
    episode_id: str | None
    placement: Mapping[str, Any] | None
    recovery: str | None
    from_snapshot: str | None
    consume: ContextPack | Mapping[str, Any] | None


def session_body(terms: SessionTerms, **members: str | None) -> dict[str, Any]:
    """The body of a request with these terms. Raises: TypeError for an unknown one."""
    check_terms("session", terms, SessionTerms)
    return given(**members, **{**terms, "consume": pack_body(terms.get("consume"))})

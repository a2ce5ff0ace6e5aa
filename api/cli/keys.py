"""Creates, lists and revokes API keys in this machine's files."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.key_places import key_place
from api.cli.key_values import known_scopes, moment, scopes_of, span
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import AsJson, example, finite, group
from paddock.cli.output import Cell, note, print_fields, print_json, size

if TYPE_CHECKING:
    from orchestrator.rules.access.keys import Principal

app = group("API keys of the control plane on this machine.")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The key's name.")]
_OF_CLUSTER = (
    "`paddock keys create NAME --role admin` makes an admin's key, and `paddock keys revoke NAME` "
    "ends one"
)
_ROLES = ("admin", "operator", "viewer", "metrics")


@app.command("list", epilog=example("paddock keys list"))
@lists
def list_all(listing: Listing = TABLE) -> None:
    """List the keys in the keys file, or of the cluster; this machine's admin key is not there."""
    place = key_place()
    keys = {key.name: key for key in place.list()}

    def row(item: dict[str, Any]) -> tuple[Cell, ...]:
        key = keys[item["name"]]
        return (
            key.name,
            key.role,
            _expiry(key),
            _bounds(key),
            key.limits.max_sessions,
            key.limits.max_cpus,
            _bytes(key.limits.max_memory_bytes),
            key.limits.max_workspaces,
            _bytes(key.limits.max_workspace_bytes),
            key.limits.requests_per_second,
        )

    limits = (">sessions", ">cpus", ">memory", ">workspaces", ">of", ">requests/s")
    print_items(
        map(_object, keys.values()),
        listing,
        ("name", "role", "expires", "bounds", *limits),
        row,
        nothing=f"{place.name} has no keys: `paddock keys create NAME` makes one",
    )


@app.command(epilog=example("paddock keys create ci --max-sessions 8"))
def create(
    name: _Name,
    role: Annotated[
        str, typer.Option(metavar="ROLE", help="admin, operator, viewer or metrics.")
    ] = "operator",
    owner: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="For a viewer: the key whose sessions it can read."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="For a viewer: it can read all sessions.")
    ] = False,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="Expiry: in 30d, 12h or 90m, or at a date such as 2030-01-31, in UTC.",
        ),
    ] = None,
    max_level: Annotated[
        str | None,
        typer.Option(metavar="LEVEL", help="The highest level that its sessions may have."),
    ] = None,
    image: Annotated[
        list[str] | None,
        typer.Option(metavar="IMAGE", help="An image that it may use; may be repeated."),
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(metavar="TOOL", help="A tool that it may open; may be repeated."),
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCOPE",
            help="A scope, such as exec; may be repeated. By default all that the role may do.",
            autocompletion=known_scopes,
        ),
    ] = None,
    max_idle_timeout: Annotated[
        int | None,
        typer.Option(min=1, help="The longest idle time-out of its sessions, in seconds."),
    ] = None,
    max_wall_timeout: Annotated[
        int | None,
        typer.Option(min=1, help="The longest wall time-out of its sessions, in seconds."),
    ] = None,
    max_sessions: Annotated[
        int | None, typer.Option(min=0, help="Maximum number of live sessions.")
    ] = None,
    max_cpus: Annotated[
        float | None,
        typer.Option(min=0, callback=finite, help="Maximum cores of its live sessions together."),
    ] = None,
    max_memory_bytes: Annotated[
        int | None,
        typer.Option(min=0, help="Maximum memory of its live sessions together, in bytes."),
    ] = None,
    max_workspaces: Annotated[
        int | None, typer.Option(min=0, help="Maximum number of workspaces, kept ones included.")
    ] = None,
    max_workspace_bytes: Annotated[
        int | None, typer.Option(min=0, help="Maximum size of its workspaces together, in bytes.")
    ] = None,
    requests_per_second: Annotated[
        float | None, typer.Option(min=0.001, callback=finite, help="Maximum requests per second.")
    ] = None,
    handle_requests_per_second: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            callback=finite,
            help="Maximum requests per second with each handle of its sessions.",
        ),
    ] = None,
    max_audit_bytes: Annotated[
        int | None,
        typer.Option(min=0, help="Maximum size of its sessions' audit records, in bytes."),
    ] = None,
    max_egress_bytes_per_day: Annotated[
        int | None,
        typer.Option(
            min=0, help="Maximum bytes of its sessions to and from the outside on one day, in UTC."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it; it is not shown again.

    A running control plane accepts it at once. An operator's key creates sessions, and can see and
    control only these; an admin's key can do everything. A viewer's key can only read. A metrics
    key can only read /metrics.
    """
    from orchestrator.ground.limits import KeyLimits
    from orchestrator.rules.access.key_bounds import KeyBounds
    from orchestrator.rules.access.keys import Principal, Role

    if role not in _ROLES:
        raise typer.BadParameter(f"must be {', '.join(_ROLES)}", param_hint="--role")
    if (role == "viewer") != (everything or owner is not None) or (everything and owner):
        raise typer.BadParameter(
            "a viewer needs exactly one, other roles none", param_hint="--owner, --all"
        )
    place = key_place()
    key = Principal(
        name,
        Role(role),
        owner=owner,
        limits=KeyLimits(
            max_sessions,
            max_cpus,
            max_memory_bytes,
            max_workspaces,
            max_workspace_bytes,
            requests_per_second,
            handle_requests_per_second,
            max_audit_bytes,
            max_egress_bytes_per_day,
        ),
        bounds=KeyBounds(
            max_level,
            tuple(image) if image else None,
            tuple(tool) if tool else None,
            max_idle_timeout,
            max_wall_timeout,
        ),
        expires_at=None if expires is None else moment(expires),
        scopes=scopes_of(scope),
    )
    secret = place.add(key)
    if as_json:
        print_json({**_object(key), "key": secret, "keys_file": place.name})
        return
    print_fields((("name", name), ("role", role), ("key", secret)))
    note(f"The key is not shown again; {place.name} has only its hash.")


@app.command(epilog=example("paddock keys rotate ci --overlap 24h"))
def rotate(
    name: _Name,
    overlap: Annotated[
        str,
        typer.Option(
            metavar="SPAN", help="How long the old secret stays valid: 24h, 30m, 7d, or 0."
        ),
    ] = "24h",
) -> None:
    """Give a key another secret and print it; the old one ends after the overlap.

    Both are the same key, with the same quotas and sessions. There are never more than two: until
    the old one has ended, a key is only rotated with --overlap 0, which ends all earlier secrets at
    once, and their streams.
    """
    place = key_place()
    secret = place.rotate(name, span(overlap))
    print_fields((("name", name), ("key", secret)))
    note(f"The key is not shown again; the old one is valid for another {overlap}.")


@app.command(epilog=example("paddock keys revoke ci"))
def revoke(name: _Name) -> None:
    """Revoke a key: it is refused from now on, and its streams end; its sessions continue."""
    place = key_place()
    place.remove(name)
    note(f"{name} is no longer in {place.name}")


@app.command("rotate-admin", epilog=example("paddock keys rotate-admin"))
def rotate_admin() -> None:
    """Replace the generated admin key; the old one is refused from now on, and its streams end.

    A running control plane accepts the new key at once. The key is in admin.key in the state
    directory, where `paddock` finds it. If PADDOCK_ADMIN_KEY sets the key, change it there and
    restart. Each node of a cluster has one of its own, which no other node accepts.
    """
    from orchestrator.ground.config_error import ConfigError
    from orchestrator.rules.access.admin_key import ADMIN_KEY_FILE, rotate_admin_key
    from orchestrator.settings.cluster_access import in_cluster, is_node
    from orchestrator.settings.settings import load_settings

    if in_cluster() and not is_node():
        raise ConfigError(
            f"this machine is no node, and a cluster has no generated admin key: {_OF_CLUSTER}"
        )
    settings = load_settings()
    if settings.admin_key is not None:
        raise ConfigError(
            "PADDOCK_ADMIN_KEY sets the admin key: change it there and restart the control plane, "
            "or unset it to have the key in a file"
        )
    path = settings.state_dir / ADMIN_KEY_FILE
    rotate_admin_key(path)
    note(f"The new admin key is in {path}; the old one is void")
    if in_cluster():
        note(f"No other node accepts it. For the whole cluster, {_OF_CLUSTER}")


def _expiry(key: "Principal") -> str | None:
    if key.expires_at is None:
        return None
    over = " (expired)" if key.expires_at <= datetime.now(UTC) else ""
    return f"{key.expires_at:%Y-%m-%d %H:%M}{over}"


def _bounds(key: "Principal") -> str | None:
    """The key's limits other than amounts, in a few words."""
    bounds = key.bounds
    parts = [
        f"reads {key.owner or 'all'}" if key.role == "viewer" else "",
        "" if key.scopes is None else f"only {' '.join(sorted(key.scopes))}",
        "" if bounds.max_level is None else f"up to {bounds.max_level}",
        "" if bounds.images is None else f"images {' '.join(bounds.images)}",
        "" if bounds.tools is None else f"tools {' '.join(bounds.tools)}",
        "" if bounds.max_idle_timeout is None else f"idle up to {bounds.max_idle_timeout} s",
        "" if bounds.max_wall_timeout is None else f"living up to {bounds.max_wall_timeout} s",
    ]
    return ", ".join(filter(None, parts)) or None


def _bytes(number: int | None) -> str | None:
    return None if number is None else size(number)


def _object(key: "Principal") -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "name": key.name,
        "role": str(key.role),
        **asdict(key.limits),
        **asdict(key.bounds),
        "scopes": None if key.scopes is None else sorted(key.scopes),
        "expires_at": None if key.expires_at is None else key.expires_at.isoformat(),
        "old_until": None if key.old is None else key.old.until.isoformat(),
        "owner": key.owner,
    }

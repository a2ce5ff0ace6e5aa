"""API keys: make them, list them, take them back, in this machine's keys file."""

from pathlib import Path
from typing import Annotated

import typer

from api.cli.options import AsJson, example, group
from api.cli.terminal import note, print_fields, print_json, print_table, size

app = group("API keys of the control plane on this machine.")

_Name = Annotated[str, typer.Argument(metavar="NAME", help="The key's name.")]


def _keys_file() -> Path:
    from orchestrator.config import load_settings

    return load_settings().keys_path


@app.command("list", epilog=example("paddock keys list"))
def list_all(as_json: AsJson = False) -> None:
    """List the keys of the keys file; the admin key is not among them."""
    from orchestrator.keys_file import list_keys

    path = _keys_file()
    keys = list_keys(path)
    if as_json:
        print_json([_object(key.name, key.role, key.limits) for key in keys])
        return
    rows = [
        (
            key.name,
            key.role,
            key.limits.max_sessions,
            key.limits.max_cpus,
            None if key.limits.max_memory_bytes is None else size(key.limits.max_memory_bytes),
            key.limits.requests_per_second,
        )
        for key in keys
    ]
    columns = ("name", "role", ">sessions", ">cpus", ">memory", ">requests/s")
    print_table(columns, rows, nothing=f"{path} has no keys: `paddock keys create NAME` makes one")


@app.command(epilog=example("paddock keys create ci --max-sessions 8"))
def create(
    name: _Name,
    admin: Annotated[
        bool, typer.Option("--admin", help="It may do everything, in every session.")
    ] = False,
    max_sessions: Annotated[
        int | None, typer.Option(min=0, help="How many sessions it may have at once.")
    ] = None,
    max_cpus: Annotated[
        float | None, typer.Option(min=0, help="How many cores they may have together.")
    ] = None,
    max_memory_bytes: Annotated[
        int | None, typer.Option(min=0, help="How much memory they may have together.")
    ] = None,
    requests_per_second: Annotated[
        float | None, typer.Option(min=0.001, help="How many requests it may make.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a key, and print it: it is not shown again.

    A running control plane takes it at once. Without --admin it is an operator's, which
    sees and controls its own sessions only.
    """
    from orchestrator.keys import Role
    from orchestrator.keys_file import add_key
    from orchestrator.limits import KeyLimits

    path = _keys_file()
    role = Role.ADMIN if admin else Role.OPERATOR
    limits = KeyLimits(max_sessions, max_cpus, max_memory_bytes, requests_per_second)
    secret = add_key(path, name, role, limits)
    if as_json:
        print_json({**_object(name, role, limits), "key": secret, "keys_file": str(path)})
        return
    print_fields((("name", name), ("role", str(role)), ("key", secret)))
    note(f"The key is not shown again; {path} has only its hash.")


@app.command(epilog=example("paddock keys revoke ci"))
def revoke(name: _Name) -> None:
    """Take a key back: it is refused from now on, and its streams end; its sessions go on."""
    from orchestrator.keys_file import remove_key

    path = _keys_file()
    remove_key(path, name)
    note(f"{name} is no longer in {path}")


def _object(name: str, role: str, limits: object) -> dict[str, object]:
    from dataclasses import asdict

    return {"name": name, "role": str(role), **asdict(limits)}  # type: ignore[call-overload]

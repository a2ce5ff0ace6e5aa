"""What a new session mounts, as words of the command line."""

from typing import Annotated

import typer

_OPTION = "--volume"

Mounts = Annotated[
    list[str] | None,
    typer.Option("--mount", metavar="NAME", help="A mount from the operator's list."),
]
FromSnapshot = Annotated[
    str | None,
    typer.Option(
        "--from-snapshot",
        metavar="SNAPSHOT",
        help="Begin with the files of a named snapshot, of `paddock snapshots create`.",
    ),
]
WorkspacePath = Annotated[
    str | None,
    typer.Option(
        "--workspace-path",
        metavar="PATH",
        help="Where its workspace is in the sandbox; by default /workspace.",
    ),
]
VolumeUses = Annotated[
    list[str] | None,
    typer.Option(
        _OPTION,
        metavar="NAME:PATH[:ro]",
        help="A volume, and its path in the sandbox; ro: for reading only.",
    ),
]


def volume_uses(texts: list[str] | None) -> list[dict[str, str | bool]] | None:
    """`NAME:PATH[:ro]` texts as the API has them. Raises: typer.BadParameter."""
    return None if texts is None else [_use(text) for text in texts]


def _use(text: str) -> dict[str, str | bool]:
    name, _, rest = text.partition(":")
    path = rest.removesuffix(":ro")
    if not name or not path.startswith("/") or ":" in path:
        message = f"{text!r} is not NAME:PATH[:ro], such as cache:/data/cache"
        raise typer.BadParameter(message, param_hint=_OPTION)
    return {"name": name, "path": path, "read_only": rest != path}

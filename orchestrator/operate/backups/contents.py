"""Which files of a state directory a backup has."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from orchestrator.settings.settings import Settings

DATABASE = "paddock.db"
ARCHIVE = "archive"
KEYS_FILE = "keys.toml"
# Whoever has one of these can use the instance, or sign in its name.
PRIVATE = ("admin.key", "preview.key", "anchor.key", "secrets.key", "egress-ca")
# The database names the files in them.
BELONGS_TO_DATABASE = ("evidence", ARCHIVE)
_OTHERS = ("anchor.pub", "images.toml", "last-good", "evidence")
SEARCH_INDEX = "search.db"
# They belong to this machine or to the running process, or the next start makes them again.
# Workspaces are added on request, in another form.
LEFT_OUT = frozenset(
    {
        *("instance", "lock", "url", "paddock.log", f"{DATABASE}-wal", f"{DATABASE}-shm"),
        *(SEARCH_INDEX, f"{SEARCH_INDEX}-wal", f"{SEARCH_INDEX}-shm"),
        *("slots", "prepared", "sandboxes", "session-workspaces"),
        *("agents", "image-facts"),
    }
)


class Member(NamedTuple):
    """A file: its name in the backup, with `/` between directories, and where it is."""

    name: str
    path: Path


def roots(settings: Settings, *, private: bool = True) -> dict[str, Path]:
    """Files and directories besides the database, by their names in a backup; not all exist.

    Files that the settings place outside the state directory are included, except a keys file,
    which is the operator's own.
    """
    state_dir = settings.state_dir
    found = {name: state_dir / name for name in _OTHERS}
    found[ARCHIVE] = settings.archive_path
    if settings.keys_path == state_dir / KEYS_FILE:
        found[KEYS_FILE] = settings.keys_path
    if private:
        found |= {name: state_dir / name for name in PRIVATE}
    return found


def members(roots: dict[str, Path]) -> Iterator[Member]:
    """Every regular file of these, in order; drafts, links and everything else are left out."""
    for name, path in sorted(roots.items()):
        try:
            facts = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(facts.st_mode):
            yield Member(name, path)
        elif stat.S_ISDIR(facts.st_mode):
            yield from _below(name, path)


def _below(name: str, directory: Path) -> Iterator[Member]:
    for parent, directories, files in os.walk(directory):
        directories[:] = sorted(each for each in directories if not each.startswith("."))
        for file in sorted(files):
            path = Path(parent) / file
            if not file.startswith(".") and path.is_file() and not path.is_symlink():
                yield Member(f"{name}/{path.relative_to(directory).as_posix()}", path)

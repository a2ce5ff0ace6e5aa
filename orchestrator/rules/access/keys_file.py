"""Edits the keys file atomically, for its owner only, and keeps its comments."""

import tomllib
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit import TOMLDocument
from tomlkit.exceptions import TOMLKitError

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import ConflictError
from orchestrator.rules.access.admin_key import new_key
from orchestrator.rules.access.key_entries import add_entries, table
from orchestrator.rules.access.key_rotation import rotated
from orchestrator.rules.access.keys import ADMIN_NAME, Principal, digest
from orchestrator.settings.operator_edits import editing, replace
from orchestrator.settings.operator_files import read_toml


def list_keys(path: Path) -> list[Principal]:
    """The file's keys in order; an empty list if there is no file. Raises: ConfigError."""
    return list(read_keys(path).values())


def read_keys(path: Path) -> dict[str, Principal]:
    """The same by digest. Raises: ConfigError."""
    return _parse(path, _read(path))


def add_key(path: Path, key: Principal) -> str:
    """Adds a key and returns its secret, which is stored nowhere. Creates a missing file.

    Raises: ConfigError if the name is taken, the entry is malformed, or the file can't be used.
    """
    secret = new_key()
    with editing(path):
        text = _read(path)
        known = _parse(path, text)
        _check_name(path, key.name, known.values())
        wanted = {**known, digest(secret): key}
        before = text.rstrip("\n") + "\n\n" if text.strip() else ""
        entry = tomlkit.dumps({"keys": [table(key, digest(secret))]})
        _write(path, before + entry, wanted)
    return secret


def check_key(path: Path, key: Principal) -> None:
    """Raises ConfigError if `add_key` would refuse the key; changes nothing."""
    with editing(path):
        known = _parse(path, _read(path))
    _check_name(path, key.name, known.values())


def _check_name(path: Path, name: str, known: Iterable[Principal]) -> None:
    if name == ADMIN_NAME:
        raise ConfigError(f"{path}: {ADMIN_NAME} is the name of the admin key: choose another")
    if any(key.name == name for key in known):
        raise ConfigError(f"{path}: the name {name!r} is taken: choose another")


def remove_key(path: Path, name: str) -> None:
    """Removes a key; a control plane that watches the file refuses it from then on.

    Raises: ConfigError if there is no such key, or the file can't be used.
    """
    with editing(path):
        text = _read(path)
        keys = _parse(path, text)
        number, _ = _entry_of(path, keys, name)
        document = _document(path, text)
        without_entry(document, number)
        left = {sha: key for sha, key in keys.items() if key.name != name}
        _write(path, tomlkit.dumps(document), left)


def rotate_key(path: Path, name: str, overlap: timedelta) -> str:
    """Gives a key another secret and returns it; the one so far is valid for the overlap.

    Raises: ConfigError if there is no such key, an earlier rotation has not ended, or the file
    can't be used.
    """
    secret = new_key()
    with editing(path):
        text = _read(path)
        keys = _parse(path, text)
        number, (sha256, key) = _entry_of(path, keys, name)
        try:
            new = rotated(key, sha256, overlap)
        except ConflictError as error:
            raise ConfigError(f"{path}: {error.detail}") from None
        document = _document(path, text)
        entry: Any = document["keys"]
        _set_secrets(entry[number], table(new, digest(secret)))
        wanted = {sha: known for sha, known in keys.items() if sha != sha256}
        _write(path, tomlkit.dumps(document), {**wanted, digest(secret): new})
    return secret


def _entry_of(
    path: Path, keys: dict[str, Principal], name: str
) -> tuple[int, tuple[str, Principal]]:
    """The number, digest and key of the entry with that name. Raises: ConfigError."""
    for number, (sha256, key) in enumerate(keys.items()):
        if key.name == name:
            return number, (sha256, key)
    raise ConfigError(f"{path}: there is no key {name!r}")


def _set_secrets(entry: Any, members: dict[str, Any]) -> None:
    for name in ("sha256", "old_sha256", "old_until"):
        if name in members:
            entry[name] = members[name]
        else:
            entry.pop(name, None)


def without_entry(document: TOMLDocument, number: int) -> None:
    """Removes the nth entry and keeps the comments before the next one."""
    entries: Any = document["keys"]
    comments = _last_comments(entries[number].as_string())
    del entries[number]
    if not entries:
        del document["keys"]
    elif number < len(entries):
        following = entries[number].trivia
        following.indent = comments + following.indent


def _last_comments(text: str) -> str:
    """The blank lines and comments at the end of an entry."""
    *lines, last = text.split("\n")
    first = len(lines)
    while first and not last and lines[first - 1].strip()[:1] in ("", "#"):
        first -= 1
    return "".join(f"{line}\n" for line in lines[first:])


def _document(path: Path, text: str) -> TOMLDocument:
    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:  # a different parser has read it, which may be less strict
        raise ConfigError(f"{path}: can't be edited: {error}: edit it by hand") from None


def _read(path: Path) -> str:
    if not path.exists():
        return ""
    read_toml(path)  # its errors name the file
    return path.read_text(encoding="utf-8")


def _parse(path: Path, text: str) -> dict[str, Principal]:
    principals: dict[str, Principal] = {}
    try:
        add_entries(path, tomllib.loads(text), principals)
    except tomllib.TOMLDecodeError:
        raise ConfigError(f"{path}: its entries are not [[keys]] tables: edit it by hand") from None
    return principals


def _write(path: Path, text: str, wanted: dict[str, Principal]) -> None:
    """Raises ConfigError if the text does not yield these keys, and OSError."""
    if _parse(path, text) != wanted:
        raise ConfigError(f"{path}: can't be edited automatically: edit it by hand")
    replace(path, text)

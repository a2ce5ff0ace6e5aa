"""Reads the operator's files without blocking on any and with a size limit."""

import errno
import os
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.file_handles import opened

# No file written by a person is larger.
MOST_BYTES = 8 * 1024 * 1024


def read_regular(path: Path, most: int = MOST_BYTES) -> bytes:
    """A file's bytes, at most `most` + 1 of them.

    Raises: OSError, also for a pipe, a device or a directory, because reading a pipe would block.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with opened(path, flags) as descriptor:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "is not a regular file", str(path))
        data = bytearray()
        while len(data) <= most and (piece := os.read(descriptor, most + 1 - len(data))):
            data += piece
        return bytes(data)


def listing(directory: Path, suffix: str) -> list[Path]:
    """The entries of a folder with that suffix, sorted, readable or not.

    Dangling links are included, except those that editors use as locks, whose names begin with a
    dot. Raises: OSError if the folder can't be listed.
    """
    names = sorted(name for name in os.listdir(directory) if name.endswith(suffix))
    return [directory / name for name in names if not _is_mark(directory / name)]


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file's table. Raises: ConfigError that names the file."""
    try:
        data = read_regular(path)
        if len(data) > MOST_BYTES:
            raise ConfigError(f"{path}: has more than {MOST_BYTES} bytes")
        return tomllib.loads(data.decode())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}") from None


def read_secret(owner: str, path: Path, check: Callable[[str], object], most: int) -> SecretStr:
    """A file's text without white space around it; `check` raises ValueError for a bad one.

    May block. Raises: ConfigError that begins with `owner`, and does not contain the secret.
    """
    try:
        text = read_regular(path, most).decode("ascii", "replace").strip()
        check(text)
        return SecretStr(text)
    except OSError as error:
        reason = error.strerror or "can't be read"
    except ValueError as error:
        reason = str(error)
    raise ConfigError(f"{owner}: {path}: {reason}")


def files_in(directory: Path, suffix: str) -> list[Path]:
    """The entries of a folder with that suffix. Raises: ConfigError if it can't be listed."""
    try:
        return listing(directory, suffix)
    except (NotADirectoryError, FileNotFoundError):
        raise ConfigError(f"{directory}: is not a directory") from None
    except OSError as error:
        raise ConfigError(f"{directory}: {error.strerror}") from None


def table_files(directory: Path) -> list[Path]:
    """The `.toml` files of a folder, without hidden files such as editors' drafts.

    Raises: ConfigError if it can't be listed.
    """
    return [path for path in files_in(directory, ".toml") if not path.name.startswith(".")]


def files_or_folder(files: Callable[[Path], list[Path]], directory: Path) -> list[Path]:
    """The files of a folder, or the folder itself if it can't be listed."""
    try:
        return files(directory)
    except ConfigError:
        return [directory]


def _is_mark(path: Path) -> bool:
    return path.name.startswith(".") and os.path.islink(path) and not os.path.exists(path)

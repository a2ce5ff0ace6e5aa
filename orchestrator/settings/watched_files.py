"""Files of the operator that are read together, and the version that was read last."""

import hashlib
import os
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.ground.config_error import ConfigError
from orchestrator.settings.operator_files import read_regular
from orchestrator.settings.settings import ensure_state_dir


@dataclass(slots=True)
class Source:
    """Files that are read together."""

    # The directory in which files appear and disappear. None: only the files are watched, because
    # others beside them change all the time.
    directory: Path | None
    # The existing or required files; the directory itself if it can't be listed.
    files: Callable[[], Iterable[Path]]
    # Reads them, and returns a function that activates them. Raises: ConfigError.
    read: Callable[[], Callable[[], None]]
    # Whether a change applies before it is recorded: a removal of a key does, a new level does not.
    at_once: bool
    # What was read last: a sha256 for each file, empty for a missing one.
    seen: dict[Path, str]
    # The files contain keys, so not even their hashes are recorded.
    secret: bool = False
    # Finds out what reading them depends on, before they are read again.
    prepare: Callable[[], Awaitable[None]] | None = None

    def watched(self) -> Iterable[Path]:
        """The paths to watch."""
        found = self.files() if self.directory is None else (self.directory,)
        return (path for path in found if os.path.exists(path))

    def changes(self) -> dict[Path, str]:
        """The files that differ from what was read last, with their present digests."""
        current = fingerprints({*self.seen, *self.files()})
        return {file: sha256 for file, sha256 in current.items() if self.seen.get(file) != sha256}


def ensure_file(path: Path) -> None:
    """Creates an empty file for its owner only, if it is missing. Raises: ConfigError."""
    ensure_state_dir(path.parent)
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def fingerprints(files: Iterable[Path]) -> dict[Path, str]:
    """The fingerprint of each file."""
    return {file: fingerprint(file) for file in files}


def fingerprint(file: Path) -> str:
    """The file's sha256, or that of nothing for a directory; empty for an unreadable file."""
    try:
        if file.is_dir():
            os.listdir(file)
            return hashlib.sha256().hexdigest()
        return hashlib.sha256(read_regular(file)).hexdigest()
    except OSError:
        return ""

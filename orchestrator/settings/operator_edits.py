"""Edits of the operator's files by commands: one at a time, and each file as a whole."""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.file_handles import opened
from orchestrator.ground.store.directories import sync_names
from orchestrator.settings.settings import ensure_state_dir


@contextmanager
def editing(path: Path) -> Iterator[None]:
    """Allows one editor of the file at a time. Raises: ConfigError, also for the block's errors."""
    try:
        ensure_state_dir(path.parent)
        with opened(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC) as directory:
            fcntl.flock(directory, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def replace(path: Path, text: str) -> None:
    """Replaces the file with the text atomically. Raises: OSError."""
    target = path.resolve()
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            if target.exists():
                owner = target.stat()
                os.fchown(descriptor, owner.st_uid, owner.st_gid)
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.replace(draft, target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    sync_names(target.parent)

"""Decides whether a session that is limited to a context pack may use a path. Pure.

Only the text of a path counts. The caller must resolve links before it opens a file.
"""

import posixpath
from collections.abc import Collection, Iterable
from typing import NamedTuple

# Private to the sandbox and empty at its start, so it is no way to a file outside the pack.
SCRATCH = "/tmp"  # noqa: S108
# A read outside the manifest is allowed and reported; or it is denied; or it is denied and ends the
# session.
WARN, SOFT_FAIL, HARD_FAIL = "warn", "soft_fail", "hard_fail"
MODES = (WARN, SOFT_FAIL, HARD_FAIL)


class Consume(NamedTuple):
    """A session's manifest, as the control plane sends it.

    `entries`, `directories` and `writes` are normalised paths relative to the workspace: the files
    that may be read, the directories that may be listed, and the files and directories that may be
    written. The workspace itself is ".". `baseline` has absolute paths of files and directories of
    the image that any program may read. `digests` are the SHA-256 of the entries' contents, in
    their order; an empty one, or a missing one, stands for any content.
    """

    manifest_id: str
    entries: tuple[str, ...]
    directories: tuple[str, ...]
    writes: tuple[str, ...]
    baseline: tuple[str, ...]
    firewall_mode: str
    digests: tuple[str, ...] = ()

    @property
    def enforced(self) -> bool:
        """Whether reads outside the manifest are denied."""
        return self.firewall_mode != WARN


class ReadManifest:
    """Answers for absolute paths of the sandbox; what is not listed is denied."""

    def __init__(
        self, consume: Consume, programs: Iterable[str] = (), workspace: str = "/workspace"
    ) -> None:
        """`programs` are further files of the image: what the level's commands need."""
        self.manifest_id = consume.manifest_id
        self._entries = _absolute(consume.entries, workspace)
        digests = zip(consume.entries, consume.digests, strict=False)
        # The digests of entries, by absolute path, without entries that may have any content.
        self.digests = {
            posixpath.normpath(f"{workspace}/{path}"): digest for path, digest in digests if digest
        }
        self._directories = _absolute(consume.directories, workspace)
        writes = _absolute(consume.writes, workspace)
        self._changed = {SCRATCH, *writes}
        self._baseline = frozenset((*consume.baseline, *programs))
        self._workspace = workspace

    def may_read(self, path: str) -> bool:
        """Whether the file may be opened for reading."""
        plain = _normalised(path)
        return plain is not None and (
            plain in self._entries or self._is_of_image(plain) or beneath(plain, {SCRATCH})
        )

    def is_entry(self, path: str) -> bool:
        """Whether the path is a file of the pack."""
        return path in self._entries

    def may_list(self, path: str) -> bool:
        """Whether the directory may be listed, as all below what the session may write."""
        plain = _normalised(path)
        return plain is not None and (
            plain in self._directories or self._is_of_image(plain) or beneath(plain, self._changed)
        )

    def may_execute(self, path: str) -> bool:
        """Whether the file may be executed, as far as reading it is concerned."""
        return self.may_read(path)

    def may_write(self, path: str) -> bool:
        """Whether the file may be written, created or removed. Writing it permits no reading."""
        plain = _normalised(path)
        return plain is not None and beneath(plain, self._changed)

    def _is_of_image(self, path: str) -> bool:
        return not beneath(path, {self._workspace}) and beneath(path, self._baseline)


def _absolute(paths: Iterable[str], workspace: str) -> frozenset[str]:
    return frozenset(posixpath.normpath(f"{workspace}/{path}") for path in paths)


def _normalised(path: str) -> str | None:
    """The path without `.`, `..` and repeated slashes; None if it is not absolute or has a NUL."""
    if not path.startswith("/") or "\0" in path:
        return None
    return "/" + posixpath.normpath(path).lstrip("/")


def beneath(path: str, tops: Collection[str]) -> bool:
    """Whether the path is one of `tops`, or is in one of them. `/a` is not in `/ab`."""
    while path not in tops:
        parent = posixpath.dirname(path)
        if parent == path:
            return False
        path = parent
    return True

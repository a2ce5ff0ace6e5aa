"""Decides whether an open that did not succeed is a context miss. Pure."""

import errno
from collections.abc import Collection

from sandbox_agent.decide.manifest import ReadManifest, beneath

# These say nothing about the file: the caller's own limits, its arguments, or a full disk.
_NO_DENIALS = frozenset(
    {
        *(errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN, errno.EINVAL),
        *(errno.EFAULT, errno.EBADF, errno.ESRCH, errno.EIO, errno.ENOSPC, errno.EDQUOT),
    }
)
_ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR})
_REFUSED = frozenset({errno.EACCES, errno.EPERM})


class Denials:
    """Distinguishes misses from opens that programs try without harm.

    In the directories `absent` of the image, programs may look for names that don't exist. Refusing
    the files and directories `refused` is no miss. All are absolute paths.
    """

    def __init__(
        self, manifest: ReadManifest, absent: Collection[str], refused: Collection[str]
    ) -> None:
        self._manifest = manifest
        self._absent = frozenset(absent)
        self._refused = frozenset(refused)

    def is_miss(self, path: str, number: int, parent: str, *, permitted: bool = True) -> bool:
        """Whether the error `number` for that resolved path is a miss.

        `parent` is the nearest directory above it that exists: a program that may list this
        directory may learn that a name is not in it. `permitted` means that the file's own
        permission bits allow the open. If the manifest allows it, too, the kernel has refused a
        file that took the place of a listed one.
        """
        if number in _NO_DENIALS:
            return False
        manifest = self._manifest
        if manifest.may_read(path) or manifest.may_list(path):
            return permitted and number in _REFUSED
        if number not in _ABSENT:
            return not beneath(path, self._refused)
        known = manifest.may_list(parent) or manifest.may_write(path)
        return not known and not beneath(path, self._absent)

"""Extended attributes of files: short texts that a file carries. Runs in a file worker."""

import errno
import os
from collections.abc import Mapping

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.files.names import plain

# Of one file; file systems have room for about 4 KiB.
MOST = 64
MOST_BYTES = 4096
# Others have a meaning to the kernel.
_OURS = "user."


def check(attributes: Mapping[str, str]) -> None:
    """Raises: AgentError for names that have a meaning to the kernel, and for too many."""
    if not all(name.startswith(_OURS) and len(name) > len(_OURS) for name in attributes):
        raise AgentError("validation_error", f"the names of attributes must begin with {_OURS}")
    size = sum(len(name.encode()) + len(value.encode()) for name, value in attributes.items())
    if len(attributes) > MOST or size > MOST_BYTES:
        text = f"a file has at most {MOST} attributes, of {MOST_BYTES} bytes in all"
        raise AgentError("validation_error", text)


def put(fd: int, attributes: Mapping[str, str]) -> None:
    """Gives an open file these attributes. Raises: AgentError if it can't have them."""
    try:
        for name, value in attributes.items():
            os.setxattr(fd, name, value.encode())
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            text = "files here can't have attributes"
            raise AgentError("validation_error", text) from None
        raise


def found(path: str, prefix: str, *, follows: bool = False) -> dict[str, str]:
    """The attributes with that prefix, by the rest of their names; none if there can't be any.

    `follows`: if it is a link, those of what it leads to.
    """
    try:
        names = os.listxattr(path, follow_symlinks=follows)
        chosen = [name for name in names if name.startswith(prefix)][:MOST]
        values = {name: os.getxattr(path, name, follow_symlinks=follows) for name in chosen}
    except OSError:
        return {}
    return {
        plain(name.removeprefix(prefix)): value[:MOST_BYTES].decode(errors="replace")
        for name, value in values.items()
    }

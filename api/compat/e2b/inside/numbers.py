"""Numbers for commands and terminals, where E2B's SDKs expect those of processes. Pure.

They follow from the ids, so that they are the same after a restart.
"""

import hashlib


def number_of(process_id: str) -> int:
    """The number of a command or terminal: from 1 to 2^31 - 1."""
    found = hashlib.sha256(process_id.encode()).digest()
    return (int.from_bytes(found[:4]) >> 1) or 1

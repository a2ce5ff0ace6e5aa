"""The program that has a connection, by what the sandbox says: advice, not proof. Pure."""

import re

UNKNOWN = "unknown"
PROGRAM_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}"
_ADDRESS = re.compile(rf"\0({PROGRAM_PATTERN})\0[0-9]+".encode())


def program_of(address: object) -> str:
    """From the address of the forwarder's side of the socket; UNKNOWN if that names none."""
    found = _ADDRESS.fullmatch(address) if isinstance(address, bytes) else None
    return UNKNOWN if found is None else found[1].decode()


def check_program(text: str) -> str:
    """Returns it. Raises: ValueError unless a rule may name it."""
    if not re.fullmatch(PROGRAM_PATTERN, text) or text == UNKNOWN:
        raise ValueError('must be the name of a program, such as "git", without its directory')
    return text

"""The texts that a client expects. SWE-ReX takes them as patterns, Paddock as texts. Pure."""

import re

_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}


def literal(pattern: str) -> str:
    r"""The text that a pattern without wildcards means: `\$ ` is `$ `, and `>>> ` is itself.

    Nothing else of patterns has a meaning: a client's pattern could take any time.
    """

    def meant(escape: re.Match[str]) -> str:
        letter = escape[1]
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        return escape[0] if letter.isalnum() else letter

    return _ESCAPE.sub(meant, pattern)

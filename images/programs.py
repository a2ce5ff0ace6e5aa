"""The programs of npm and PyPI in an image: the files that its build reads.

`python -m images.programs NAME` prints what the lock file of that list is made from.
"""

import ssl
import sys
from pathlib import Path
from typing import NamedTuple

_FOLDER = "images/sandbox/programs"
_MOST_BYTES = 4 * 1024 * 1024
# Makes the programs of the packages on its input, and of none that these need, commands.
_LINK = """\
import os, sys
from importlib.metadata import distribution
for line in sys.stdin:
    for each in distribution(line.partition("==")[0].strip()).entry_points:
        if each.group == "console_scripts":
            os.symlink(os.path.join(sys.prefix, "bin", each.name), f"{sys.argv[1]}/{each.name}")
"""


class Programs(NamedTuple):
    """Packages with exact versions, as npm (`NAME@VERSION`) and pip (`NAME==VERSION`) name them.

    `lock` has the versions and digests of all that those of pip need; None: any versions.
    """

    npm: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    lock: str | None = None

    def files(self) -> dict[str, bytes]:
        """The files that the build reads, by path in its context; empty ones without programs."""
        requirements = _lines(self.pip) if self.lock is None else self.lock.encode()
        return {
            f"{_FOLDER}/npm": _lines(self.npm),
            f"{_FOLDER}/pip": _lines(self.pip),
            f"{_FOLDER}/requirements.txt": requirements if self.pip else b"",
            f"{_FOLDER}/link.py": _LINK.encode() if self.pip else b"",
        }

    def trust(self) -> dict[str, bytes]:
        """This machine's authorities, for the build only, if it fetches something.

        They are no input of the image: another machine has others, and makes the same image.
        """
        if not (self.npm or self.pip):
            return {}
        found = ssl.get_default_verify_paths().cafile
        if found is None:
            return {}
        with Path(found).open("rb") as file:
            return {f"{_FOLDER}/authorities.pem": file.read(_MOST_BYTES)}


NO_PROGRAMS = Programs()


def _lines(names: tuple[str, ...]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()


def main() -> None:
    """Prints the requirements of a list."""
    from images.recipes import find_recipe

    print(*find_recipe(sys.argv[1]).programs.pip, sep="\n")


if __name__ == "__main__":
    main()

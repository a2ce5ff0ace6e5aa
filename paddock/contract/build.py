"""Which build this is: its version, its commit, and when it was built or committed.

A built package has a file that says it; in a checkout, git knows it.
"""

import json
import re
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

# What a build writes beside this module.
FILE = "build.json"
UNKNOWN = "unknown"
_HERE = Path(__file__).parent
_CHECKOUT = Path(__file__).parents[2]
# A repository on a slow disk must not hold up a start.
_GIT_SECONDS = 5
_MOST_BYTES = 4096
_WORD = re.compile(r"[0-9A-Za-z.:+~-]{1,64}")


class Build(NamedTuple):
    """The version's number, the commit's hash, and a time in RFC 3339; `unknown` if nobody knows.

    The time is that of the build, or in a checkout of the commit. A commit that ends with
    `+changed` is one of a checkout whose files differ from it.
    """

    version: str
    commit: str
    date: str

    def __str__(self) -> str:
        return f"{self.version} (commit {self.commit[:12]}{self._changed}, built {self.date})"

    @property
    def _changed(self) -> str:
        return "+changed" if self.commit.endswith("+changed") else ""

    def text(self) -> str:
        """The contents of the file that says it. The same build has the same text."""
        return json.dumps(self._asdict(), indent=1) + "\n"


def this_build() -> Build:
    """This program's build. It asks git in a checkout, which takes some milliseconds."""
    return _recorded(_HERE / FILE) or in_checkout(_CHECKOUT)


def in_checkout(root: Path) -> Build:
    """What git knows of a checkout; the files of the working tree are compared with the commit."""
    # Of a package that is installed in a project's environment, git would tell the project's.
    found = _git(root, "log", "-1", "--format=%H %cI") if (root / ".git").exists() else None
    if found is None or len(words := found.split()) != 2:
        return Build(_number(), UNKNOWN, UNKNOWN)
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    commit = words[0] if changed == "" else f"{words[0]}+changed"
    return Build(_number(), commit, words[1])


def _recorded(path: Path) -> Build | None:
    """The build that a file tells of; None if there is none, or it is none of ours."""
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(_MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    fields = [found.get(name) for name in Build._fields] if isinstance(found, Mapping) else []
    words = [each for each in fields if isinstance(each, str) and _WORD.fullmatch(each)]
    return Build(*words) if len(words) == len(Build._fields) else None


def _git(root: Path, *words: str) -> str | None:
    """What git prints; None without git, or if it refuses, as in somebody else's checkout."""
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", "-C", str(root), *words],
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _number() -> str:
    try:
        return version("paddock")
    except PackageNotFoundError:  # run from its sources
        return UNKNOWN

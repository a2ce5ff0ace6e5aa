"""Finds other Pythons that the tests could run on: `make versions` runs them there."""

import os
import shutil
import sys
from pathlib import Path

_MINORS = range(11, 31)


def others() -> list[str]:
    """Versions such as `3.13`, on the path or of pyenv, as scripts/versions.sh finds them."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    return [
        f"3.{minor}"
        for minor in _MINORS
        if minor != sys.version_info.minor
        and (shutil.which(f"python3.{minor}") or any(pyenv.glob(f"3.{minor}.*/bin/python3")))
    ]


def header() -> str:
    """A note about them for a test run."""
    own, there = f"3.{sys.version_info.minor}", ", ".join(others())
    if not there:
        return f"these tests run on Python {own}; no other that is allowed was found here"
    return f"these tests run on Python {own} only; `make versions` runs them on {there}, too"

"""Environments for clients of other projects: exact versions from PyPI, kept between runs."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from scripts import wheels
from tests.support.limits import PROGRAM_SECONDS

# The versions of each environment: NAME.in says what is wanted, and `make lock` writes NAME.lock.
PINS = Path(__file__).with_name("pins")
_INSTALL_SECONDS = 1800


class Environment(NamedTuple):
    """An environment with one project's packages, and with Paddock's client as users install it.

    The environment is shared by all clones of this user, so the client, which changes, is beside
    it.
    """

    python: Path
    client: Path

    def run(
        self,
        *arguments: str | Path,
        input: str | None = None,
        cwd: Path | None = None,
        seconds: float = PROGRAM_SECONDS,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs the environment's Python with these arguments; its failure is no error.

        `variables` are added to those of this process, without Paddock's and Python's own.
        """
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PADDOCK_", "PYTHON"))}
        path = os.pathsep.join((str(self.python.parent), str(self.client / "bin"), clean["PATH"]))
        return subprocess.run(
            (self.python, *arguments),
            cwd=cwd or self.client,
            env=clean | {"PYTHONPATH": str(self.client), "PATH": path} | dict(variables or {}),
            input=input,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )


def environment(name: str, client: Path, python: Path = Path(sys.executable)) -> Environment:
    """The environment with the packages of `pins/NAME.lock`, installed if it isn't yet.

    `python` is the interpreter that it is made of. Raises: AssertionError with what the installer
    said.
    """
    return Environment(installed(name, python), client)


def interpreter(version: str) -> Path | None:
    """A Python of that version, such as 3.12: on the path, or of pyenv; None: there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    named = shutil.which(f"python{version}")
    found = [*([Path(named)] if named else []), *sorted(pyenv.glob(f"{version}.*/bin/python3"))]
    # One of pyenv on the path may stand for a version that is not chosen.
    runs = (each for each in found if _silently(each, "-c", "") == 0)
    return next(runs, None)


def _silently(*words: str | Path) -> int:
    done = subprocess.run(words, capture_output=True, timeout=PROGRAM_SECONDS, check=False)
    return done.returncode


def install_client(directory: Path) -> Path:
    """Installs the client's wheel, without what it needs, into a folder below the directory."""
    wheel, _ = wheels.build(directory / "wheels")
    target = directory / "client"
    python = f"--python={sys.executable}"
    _uv("pip", "install", "--no-deps", python, f"--target={target}", str(wheel))
    return target


def installed(name: str, made_of: Path) -> Path:
    """The interpreter of the environment; one process installs it while others wait."""
    lock = PINS / f"{name}.lock"
    digest = hashlib.sha256(lock.read_bytes() + bytes(made_of.resolve())).hexdigest()
    directory = _cache() / f"{name}-{digest[:16]}"
    directory.parent.mkdir(parents=True, exist_ok=True)
    python = directory / "bin" / "python"
    with directory.with_suffix(".busy").open("w") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        complete = directory / "complete"
        if not complete.exists():
            shutil.rmtree(directory, ignore_errors=True)
            _uv("venv", f"--python={made_of}", str(directory))
            _uv("pip", "install", f"--python={python}", f"--requirement={lock}")
            complete.touch()
    return python


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "paddock", "foreign")


def _uv(*arguments: str) -> None:
    done = subprocess.run(
        (sys.executable, "-m", "uv", "--quiet", *arguments),
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr

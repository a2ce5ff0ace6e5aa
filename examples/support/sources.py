"""Fetches a published package's source and its test dependencies, and caches them."""

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PIP_SECONDS = 300
# The Python version of the sandbox image; only pure Python packages are accepted.
SANDBOX_PYTHON = "3.11"


class SourceError(Exception):
    """The package can't be fetched; the message gives the reason in one or two lines."""


@dataclass(frozen=True, slots=True)
class Source:
    """A published package: `files` by path, all below the directory `name`."""

    name: str
    files: dict[str, bytes]


def published_source(requirement: str) -> Source:
    """The sdist of a package such as `click==8.1.8`. Raises: SourceError.

    pip asks the package's build system for its metadata, which runs the package's code on this
    machine: name only packages that you would install.
    """
    folder = _cached(
        f"sdist {requirement}",
        ["download", "--no-deps", "--no-binary", ":all:", "--dest", "{folder}", requirement],
    )
    archives = list(folder.glob("*.tar.gz"))
    if len(archives) != 1:
        raise SourceError(f"{requirement} has no .tar.gz source distribution")
    try:
        files = _unpacked(archives[0])
    except (tarfile.TarError, EOFError, OSError) as error:
        raise SourceError(f"{archives[0]} can't be read: {error}") from None
    return Source(archives[0].name.removesuffix(".tar.gz"), files)


def installed(requirements: Iterable[str]) -> dict[str, bytes]:
    """Files of installed pure Python packages and their dependencies. Raises: SourceError."""
    wanted = sorted(requirements)
    options = ["--no-compile", "--only-binary", ":all:", "--platform", "any"]
    options += ["--implementation", "py", "--abi", "none", "--python-version", SANDBOX_PYTHON]
    folder = _cached(
        f"installed {SANDBOX_PYTHON} {' '.join(wanted)}",
        ["install", *options, "--target", "{folder}", *wanted],
    )
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }


def write_below(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes files by relative path, and the directories that they need."""
    for path, content in files.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def _unpacked(archive: Path) -> dict[str, bytes]:
    """The regular files of an archive, read into memory: nothing is extracted to disk."""
    files = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isfile() else None
            if content is not None:
                files[member.name] = content.read()
    return files


def _cached(what: str, pip_arguments: list[str]) -> Path:
    """The folder that pip filled, now or in an earlier run; never a partial one."""
    folder = _cache_directory() / hashlib.sha256(what.encode()).hexdigest()[:16]
    try:
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as work:
                fetched = Path(work) / "fetched"
                _pip([argument.format(folder=fetched) for argument in pip_arguments])
                _keep(fetched, folder)
    except OSError as error:
        raise SourceError(f"{folder.parent}: {error.strerror}") from None
    return folder


def _keep(fetched: Path, folder: Path) -> None:
    try:
        fetched.rename(folder)
    except OSError:
        if not folder.exists():  # otherwise another run was first
            raise


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "paddock" / "examples"


def _pip(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check"]
    try:
        done = subprocess.run(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PIP_SECONDS,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise SourceError(f"pip did not end within {PIP_SECONDS} s") from None
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        raise SourceError("\n".join(["pip failed", *lines[-2:]]))

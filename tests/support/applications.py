"""Web applications from PyPI and npm, installed once and put into sandboxes as an archive."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from tests.support.box import Box
from tests.support.limits import PROGRAM_SECONDS

# `make lock` writes their exact versions.
_LOCKS = Path(__file__).parents[1] / "fixtures" / "applications"
# Python of the sandbox image.
_VERSION = "3.11"
# Where they are in a workspace.
PLACE = "packages"
ENVIRONMENT = {"PYTHONPATH": f"/workspace/{PLACE}", "PYTHONDONTWRITEBYTECODE": "1"}
# What only completes words in an editor: half of Jupyter's files.
_LEFT_OUT = ("jedi/third_party",)


def archive_of(name: str, directory: Path) -> bytes:
    """A tar archive of an application and of all that it needs, installed into the directory."""
    target = install(name, directory)
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.add(target, ".", filter=_kept)
    return made.getvalue()


def install(name: str, directory: Path) -> Path:
    """The folder of an application and of all that it needs, made in the directory."""
    target = directory / name
    subprocess.run(
        [
            *(sys.executable, "-m", "uv", "--quiet", "pip", "install", "--no-deps"),
            *("--require-hashes", "--only-binary=:all:", "--link-mode=copy"),
            *("--python", sys.executable, "--python-version", _VERSION),
            *("--target", str(target), "--requirements", str(_LOCKS / f"{name}.lock")),
        ],
        check=True,
        timeout=PROGRAM_SECONDS,
    )
    return target


def npm_project(name: str, directory: Path) -> Path:
    """A project with all that it needs, installed into the directory by its lock file."""
    npm = shutil.which("npm")
    assert npm is not None, "no npm: `make node` installs it"
    project = shutil.copytree(_LOCKS / name, directory / name)
    options = ("--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
    run_in(project, npm, "ci", "--silent", *options)
    return project


def run_in(project: Path, *argv: str) -> None:
    """Runs a program of the project, which must succeed."""
    environment = {**os.environ, "NEXT_TELEMETRY_DISABLED": "1"}
    done = subprocess.run(
        argv, cwd=project, env=environment, capture_output=True, text=True, timeout=PROGRAM_SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr


def tree_of(*directories: tuple[Path, str]) -> bytes:
    """A tar archive of directories, each at its place."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for directory, place in directories:
            archive.add(directory, place)
    return made.getvalue()


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if member.name.removeprefix("./") in _LEFT_OUT else member


async def put(box: Box, archive: bytes) -> None:
    """Unpacks it in the session's workspace."""
    await box.mkdir(PLACE)
    await box.unpack(archive, PLACE)

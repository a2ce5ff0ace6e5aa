"""Installs the control plane image's Python packages here, for the engine's architecture.

The image is therefore built without a network, and contains neither pip nor a build tool.
"""

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from images import base
from images.errors import BuildError
from images.releases import DEBIAN_12, Release
from paddock.contract.build import FILE, this_build

# The exact versions of the dependencies; the path is relative to the repository.
LOCK = "requirements.lock"
_OLDEST_GLIBC_MINOR = 17
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def install(
    files: Mapping[str, bytes], architecture: str, release: Release, report: base.Report
) -> dict[str, bytes]:
    """`site/<path>` of every installed file: the project in `files` and its dependencies.

    `architecture` is the engine's name for it, `release` the base's. Raises: BuildError.
    """
    if "pyproject.toml" not in files:
        raise BuildError("the control plane's image can be built only in a clone of the repository")
    platforms = platform_options(architecture, release)
    report("installing the control plane's Python packages")
    with tempfile.TemporaryDirectory(prefix="paddock-site-") as directory:
        source, wheels, site = (Path(directory) / name for name in ("source", "wheels", "site"))
        for name, content in files.items():
            path = source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        told = source / "paddock" / "contract" / FILE
        told.write_text(this_build().text(), encoding="utf-8")
        _pip(report, "wheel", "--no-deps", f"--wheel-dir={wheels}", str(source))
        (wheel,) = wheels.iterdir()
        target = [f"--target={site}", "--no-compile", "--no-deps", "--only-binary=:all:"]
        target += ["--implementation=cp", f"--python-version={release.python}", *platforms]
        _pip(report, "install", *target, "--require-hashes", f"--requirement={source / LOCK}")
        _pip(report, "install", *target, str(wheel))
        return _collected(site)


def platform_options(architecture: str, release: Release = DEBIAN_12) -> list[str]:
    """pip's options for wheels that run on that release. Raises: BuildError.

    pip accepts a wheel for an older C library only if that platform's name is listed.
    """
    machine = _MACHINES.get(architecture)
    if machine is None:
        raise BuildError(
            f"the engine runs on {architecture}; the control plane's image is made for "
            f"{' and '.join(_MACHINES)} only"
        )
    minors = range(release.glibc_minor, _OLDEST_GLIBC_MINOR - 1, -1)
    names = [*(f"manylinux_2_{minor}" for minor in minors), "manylinux2014"]
    return [f"--platform={name}_{machine}" for name in names]


def _collected(site: Path) -> dict[str, bytes]:
    """The installed files except scripts, which name this machine's interpreter."""
    return {
        f"site/{path.relative_to(site).as_posix()}": path.read_bytes()
        for path in site.rglob("*")
        if path.is_file() and path.relative_to(site).parts[0] != "bin"
    }


def _pip(report: base.Report, *arguments: str) -> None:
    options = ["--disable-pip-version-check", "--no-input", "--progress-bar=off", "-qq"]
    base.run([sys.executable, "-m", "pip", arguments[0], *options, *arguments[1:]], report)

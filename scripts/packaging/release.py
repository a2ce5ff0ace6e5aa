"""Makes everything of a release: `python -m scripts.packaging.release [DIRECTORY]`."""

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from images.errors import BuildError
from images.exporting import export
from images.progress import detail, failure, step
from images.recipes import CONTROL_PLANE, SANDBOX
from images.site import LOCK
from paddock.contract.build import UNKNOWN, Build
from scripts import npm_package, wheels
from scripts.packaging import deb

ROOT = Path(__file__).parents[2]
SUMS = "SHA256SUMS"
# What writes and validates the list of parts, in an environment of its own.
_SPDX_TOOLS = "spdx-tools==0.8.5"
_SECONDS = 600


class ReleaseError(Exception):
    """There can be no release now; the message gives the reason and the remedy in one line."""


def section(changelog: str, number: str) -> str:
    """What the changelog says of that version. Raises: ReleaseError."""
    found = re.search(rf"(?ms)^## {re.escape(number)} (\([^\n]*\))\n(.*?)(?=^## |\Z)", changelog)
    if found is None:
        raise ReleaseError(f"CHANGELOG.md has no section `## {number} (DATE)`: write one")
    if "unreleased" in found[1]:
        raise ReleaseError(f"CHANGELOG.md has {number} as unreleased: put its date there")
    return found[2].strip() + "\n"


def check(build: Build) -> None:
    """Raises: ReleaseError if the build is of no commit that others can have."""
    if build.commit == UNKNOWN:
        raise ReleaseError("this is no clone of the repository: a release is of a commit")
    if build.commit.endswith("+changed"):
        raise ReleaseError("files differ from the commit: commit or discard the changes")


def make(target: Path) -> None:
    """Writes all files into an empty directory.

    Raises: ReleaseError; BuildError, PackageError and CalledProcessError of the single steps.
    """
    build = wheels.stamp()
    check(build)
    changes = section((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), build.version)
    if target.exists() and any(target.iterdir()):
        raise ReleaseError(f"{target} has files: empty it, so that nothing else is released")
    target.mkdir(parents=True, exist_ok=True)
    for what, made in _steps(target, build):
        step(what)
        made()
    (target / f"CHANGES-{build.version}.md").write_text(changes, encoding="utf-8")
    (target / SUMS).write_text(sums(target))
    step(f"release {build} is in {target}")


def _steps(target: Path, build: Build) -> list[tuple[str, Callable[[], object]]]:
    images = target / f"paddock-images-{build.version}.tar.gz"
    return [
        ("wheels and source packages", lambda: wheels.build(target, sources=True)),
        ("the JavaScript client", lambda: _javascript(target)),
        ("Debian packages", lambda: deb.build(target)),
        ("images", lambda: export(images, [SANDBOX.image, CONTROL_PLANE.image], detail)),
        ("the list of parts", lambda: parts(target / f"paddock-{build.version}.spdx.json", build)),
    ]


def _javascript(target: Path) -> None:
    if npm_package.main([str(target)]):
        raise ReleaseError("the JavaScript client's package can't be built, see above")


def parts(file: Path, build: Build) -> None:
    """Writes the list of parts in SPDX. Raises: ReleaseError if it is not valid."""
    given = {
        "name": "paddock",
        "version": build.version,
        "created": build.date,
        "lock": (ROOT / LOCK).read_text(encoding="utf-8"),
    }
    alone = ("uv", "run", "-q", "--no-project", "--isolated", f"--with={_SPDX_TOOLS}")
    program = Path(__file__).with_name("parts.py")
    done = subprocess.run(
        [sys.executable, "-m", *alone, "python", str(program), str(file)],
        input=json.dumps(given),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        raise ReleaseError(f"the list of parts can't be made: {' '.join(done.stdout.split())}")


def sums(directory: Path) -> str:
    """The SHA-256 of each file of the directory, as `sha256sum --check` reads them."""
    lines = []
    for path in sorted(directory.iterdir()):
        if path.name != SUMS:
            with path.open("rb") as file:
                lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    return "".join(lines)


def main() -> int:
    """Makes the release, or says in one line why there is none."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    try:
        make(target)
    except subprocess.CalledProcessError as error:
        print(error.stdout, file=sys.stderr)
        return 1
    except (ReleaseError, BuildError, npm_package.PackageError, OSError) as error:
        failure(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

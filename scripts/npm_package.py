"""Builds the JavaScript client's package: `python -m scripts.npm_package [DIRECTORY]`.

It needs Node and npm; the compiler, which `package-lock.json` pins, is fetched from npm.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "sdk" / "js"
_PARTS = ("package.json", "package-lock.json", "tsconfig.json", "README.md", "src", "tests")
_BUILD_SECONDS = 300


class PackageError(Exception):
    """The package can't be built; the text has the reason."""


def build(target: Path) -> None:
    """Compiles the client in a copy of its folder, which has the compiler, too.

    Raises: PackageError.
    """
    target.mkdir(parents=True)
    for name in _PARTS:
        source = SOURCE / name
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target / name)
    shutil.copyfile(ROOT / "LICENSE", target / "LICENSE")
    run(target, "npm", "ci", "--no-audit", "--no-fund", "--prefer-offline")
    run(target, "npm", "run", "build")


def run(directory: Path, *command: str) -> str:
    """What a command prints there. Raises: PackageError."""
    done = subprocess.run(
        command,
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_BUILD_SECONDS,
        check=False,
    )
    if done.returncode:
        raise PackageError(f"{' '.join(command)} failed:\n{done.stdout}")
    return done.stdout


def main(arguments: list[str]) -> int:
    """Writes the package's file, for `npm install`."""
    target = Path(arguments[0]) if arguments else ROOT / "dist"
    target.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(prefix="paddock-npm-") as directory:
            built = Path(directory, "package")
            build(built)
            run(built, "npm", "pack", "--silent", "--pack-destination", str(target.resolve()))
    except PackageError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"wrote {', '.join(sorted(each.name for each in target.glob('paddock-*.tgz')))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Builds the wheels of the two distributions: `python -m scripts.wheels [DIRECTORY]`.

Users install `paddock`; `paddock-server` requires the `paddock` of the same version. The single
`pyproject.toml` describes both, as a project for development that contains everything.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tomlkit

from paddock.contract.build import FILE, Build, in_checkout

ROOT = Path(__file__).parents[1]
CLIENT, SERVER = "paddock", "paddock-server"
# The extras of servers.
EXTRAS = ("cluster", "oidc", "otel")
# The package index shows these, and the licence requires them, in both distributions.
_TEXTS = ("README.md", "LICENSE")
_BUILD_SECONDS = 300
_BUILD = ("-m", "uv", "build", "--no-create-gitignore")
# No time in a zip archive is earlier.
_EARLIEST = 315_532_800
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def build(target: Path, *, sources: bool = False) -> tuple[Path, Path]:
    """Writes the wheels of the client and the server to the directory, and source packages, too.

    Raises: subprocess.CalledProcessError, whose `stdout` has the reason.
    """
    with tempfile.TemporaryDirectory(prefix="paddock-wheels-") as directory:
        trees, wheels = Path(directory, "sources"), Path(directory, "wheels")
        for name in (CLIENT, SERVER):
            write_source(trees / name, project(name))
        target.mkdir(parents=True, exist_ok=True)
        for name in (CLIENT, SERVER):
            build_in(wheels, trees / name, "--wheel")
            if sources:
                build_in(target, trees / name, "--sdist")
        (client,) = wheels.glob("paddock-*.whl")
        (server,) = wheels.glob("paddock_server-*.whl")
        for wheel in (client, server):
            shutil.copyfile(wheel, target / wheel.name)
        return target / client.name, target / server.name


def project(name: str) -> dict[str, Any]:
    """The `pyproject.toml` of one distribution."""
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    ours = whole["project"]
    client_needs = set(whole["tool"]["paddock"]["client-dependencies"])
    # Development dependencies, and the classifier that prevents an accidental upload of the whole.
    del ours["optional-dependencies"]["dev"]
    ours["classifiers"].remove("Private :: Do Not Upload")
    packages = whole["tool"]["setuptools"]["packages"]["find"]["include"]
    ours["name"] = name
    if name == CLIENT:
        ours["dependencies"] = [
            each for each in ours["dependencies"] if requirement_name(each) in client_needs
        ]
        del ours["entry-points"]["paddock.server"]
        for extra in EXTRAS:
            del ours["optional-dependencies"][extra]
        packages = [each for each in packages if each.startswith(CLIENT)]
    else:
        ours["dependencies"].append(f"{CLIENT}=={ours['version']}")
        # The frameworks' extras and entry points lead to the client.
        ours["optional-dependencies"] = {
            extra: ours["optional-dependencies"][extra] for extra in EXTRAS
        }
        del ours["scripts"]
        ours["entry-points"] = {"paddock.server": ours["entry-points"]["paddock.server"]}
        packages = [each for each in packages if not each.startswith(CLIENT)]
    data = whole["tool"]["setuptools"]["package-data"]
    tops = {each.rstrip("*") for each in packages}
    return {
        "build-system": whole["build-system"],
        "project": ours,
        "tool": {
            "setuptools": {
                "packages": {"find": {"include": packages}},
                "package-data": {top: each for top, each in data.items() if top in tops},
            }
        },
    }


def requirement_name(requirement: str) -> str:
    """The distribution that a requirement names."""
    found = _NAME.match(requirement)
    return "" if found is None else found[0]


def write_source(directory: Path, described: dict[str, Any]) -> None:
    """Creates a source tree of that distribution only, as the build takes all that it finds."""
    directory.mkdir(parents=True)
    (directory / "pyproject.toml").write_text(tomlkit.dumps(described), encoding="utf-8")
    for name in _TEXTS:
        shutil.copyfile(ROOT / name, directory / name)
    leftovers = shutil.ignore_patterns("__pycache__", ".*")
    for package in described["tool"]["setuptools"]["packages"]["find"]["include"]:
        top = package.rstrip("*")
        shutil.copytree(ROOT / top, directory / top, ignore=leftovers)
        if top == CLIENT:
            (directory / top / "contract" / FILE).write_text(stamp().text(), encoding="utf-8")


def stamp() -> Build:
    """The build that is made now: its time is SOURCE_DATE_EPOCH, and by default the commit's.

    So the same commit makes the same files, whenever it is built.
    """
    found = in_checkout(ROOT)._replace(version=number())
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is None:
        return found
    return found._replace(date=datetime.fromtimestamp(int(given), UTC).isoformat())


def number() -> str:
    """The version that is built."""
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return str(whole["project"]["version"])


def epoch() -> int:
    """The time of all files of this build, in seconds since 1970."""
    date = stamp().date
    return int(datetime.fromisoformat(date).timestamp()) if "T" in date else _EARLIEST


def build_in(target: Path, source: Path, kind: str) -> None:
    """Builds one source tree as `kind`: `--wheel` or `--sdist`.

    Raises: subprocess.CalledProcessError, whose `stdout` has the reason.
    """
    subprocess.run(
        [sys.executable, *_BUILD, kind, f"--out-dir={target}", str(source)],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_BUILD_SECONDS,
        env=os.environ | {"SOURCE_DATE_EPOCH": str(epoch())},
    )


def main() -> int:
    """Builds the wheels and prints their paths."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    try:
        wheels = build(target)
    except subprocess.CalledProcessError as error:
        print(error.stdout, file=sys.stderr)
        return 1
    for wheel in wheels:
        print(wheel)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Builds the Debian packages: `python -m scripts.packaging.deb [DIRECTORY]`.

There is one for each supported Debian, because the server's environment has libraries that are
built for that release's Python. All its files are the package's own; nothing is fetched when it is
installed. It needs pip's index, or its cache, and `dpkg-deb`.
"""

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import NamedTuple

from images.errors import BuildError
from images.releases import DEBIAN_12, DEBIAN_13, Release
from images.site import LOCK
from scripts import wheels
from scripts.packaging import manual

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "deploy" / "debian"
PACKAGE = "paddock"
# Where its environment is.
_HOME = "usr/lib/paddock"
_SCRIPTS = ("postinst", "prerm", "postrm")
_CONFFILES = {"etc/paddock/environment": 0o600, "etc/paddock/paddock.toml": 0o644}
_LOCAL = ("direct_url.json", "REQUESTED", "uv_cache.json", "uv_build.json")
# Debian's names of architectures, and Python's.
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
# The newest that the installer knows; wheels for it run with later ones.
_NEWEST_GLIBC = 40
_SECONDS = 600
_MAINTAINER = "Paddock <paddock@localhost>"
_WIDTH = 72


class Debian(NamedTuple):
    """A Debian: the number in the package's version, its Python, and where it has its units."""

    number: int
    release: Release
    units: str


DEBIANS = (
    Debian(12, DEBIAN_12, "lib/systemd/system"),
    Debian(13, DEBIAN_13, "usr/lib/systemd/system"),
)


def build(target: Path) -> list[Path]:
    """Writes the package of each Debian into the directory.

    Raises: BuildError, CalledProcessError (its `stdout` has the reason).
    """
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="paddock-deb-") as directory:
        ours = wheels.build(Path(directory, "wheels"))
        return [
            _package(Path(directory, f"debian-{each.number}"), each, ours, target)
            for each in DEBIANS
        ]


def version(debian: Debian) -> str:
    """The package's version: a later commit has a higher one, and the release the highest."""
    number, commit, date = wheels.stamp()
    suffix = f"+deb{debian.number}"
    if released(number):
        return f"{number}{suffix}"
    when = datetime.fromisoformat(date).astimezone(UTC) if "T" in date else datetime.now(UTC)
    changed = ".changed" if commit.endswith("+changed") else ""
    return f"{number}~{when:%Y%m%d%H%M%S}.{commit[:8]}{changed}{suffix}"


def released(number: str) -> bool:
    """Whether the changelog has that version with a date, and not as unreleased."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith(f"## {number} ")]
    return bool(lines) and "unreleased" not in lines[0]


def _package(stage: Path, debian: Debian, ours: tuple[Path, ...], target: Path) -> Path:
    architecture = _output("dpkg", "--print-architecture").strip()
    if architecture not in _MACHINES:
        raise BuildError(f"packages are made on {' and '.join(_MACHINES)}, not on {architecture}")
    python = f"python{debian.release.python}"
    site = stage / _HOME / "lib" / python / "site-packages"
    _install(site, debian, architecture, ours)
    _environment(stage / _HOME, python)
    number = version(debian)
    _files(stage, debian, number)
    _modes(stage)
    _control(stage, debian, number, architecture)
    made = target / f"{PACKAGE}_{number}_{architecture}.deb"
    # dpkg-deb sets later times to SOURCE_DATE_EPOCH.
    pack(stage, made)
    return made


def pack(stage: Path, made: Path) -> None:
    """Makes a package of a tree. Raises: CalledProcessError."""
    # Debian's tools refuse zstd. Higher levels of xz take minutes for a tenth less.
    options = ("--root-owner-group", "-Zxz", "-z1", "--build")
    _output("dpkg-deb", *options, str(stage), str(made))


def _install(site: Path, debian: Debian, architecture: str, ours: tuple[Path, ...]) -> None:
    """The exact versions of the lock file, and the wheels of this build."""
    release = debian.release
    platform = f"{_MACHINES[architecture]}-manylinux_2_{min(release.glibc_minor, _NEWEST_GLIBC)}"
    # Copied, because hard links would lead to the cache.
    install = [sys.executable, "-m", "uv", "pip", "install", "-q", "--link-mode=copy", "--no-deps"]
    install += [f"--target={site}", f"--python-version={release.python}"]
    install += [f"--python-platform={platform}", "--only-binary=:all:"]
    _output(*install, "--require-hashes", f"--requirement={ROOT / LOCK}")
    _output(*install, *map(str, ours))
    (site / ".lock").unlink(missing_ok=True)
    shutil.rmtree(site / "bin", ignore_errors=True)  # they name this machine's interpreter
    for found in site.glob("*.dist-info"):
        # They name a path or a time of this machine, or the order of the installation.
        for name in _LOCAL:
            (found / name).unlink(missing_ok=True)
        record = found / "RECORD"
        gone = ("../../bin/", "bin/", *(f"{found.name}/{name}" for name in _LOCAL))
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = sorted(line for line in lines if not line.startswith(gone))
        record.write_text("".join(kept), encoding="utf-8")


def _environment(home: Path, python: str) -> None:
    """What makes a directory a virtual environment of the system's interpreter."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python3").symlink_to(f"/usr/bin/{python}")
    (home / "pyvenv.cfg").write_text(
        "home = /usr/bin\ninclude-system-site-packages = false\n"
        f"version = {python.removeprefix('python')}\n"
    )
    (home / "let-go").symlink_to("/usr/bin/paddock")


def _files(stage: Path, debian: Debian, number: str) -> None:
    """Everything outside of the environment."""
    share = stage / "usr" / "share"
    documents = share / "doc" / PACKAGE
    plain = {
        stage / "usr" / "bin" / PACKAGE: SOURCE / PACKAGE,
        stage / debian.units / "paddock.service": SOURCE / "paddock.service",
        share / "lintian" / "overrides" / PACKAGE: SOURCE / "lintian-overrides",
        documents / "copyright": SOURCE / "copyright",
        **{stage / name: SOURCE / "etc" / Path(name).name for name in _CONFFILES},
    }
    for place, source in plain.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)
    packed = {
        documents / "changelog.gz": _changes(number).encode(),
        documents / "CHANGELOG.md.gz": (ROOT / "CHANGELOG.md").read_bytes(),
        documents / "configuration.md.gz": (ROOT / "docs" / "configuration.md").read_bytes(),
        share / "man" / "man1" / "paddock.1.gz": manual.manual_page(number).encode(),
    }
    for place, content in packed.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(gzip.compress(content, 9, mtime=0))
    for name, text in manual.completions().items():
        place = share / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")


def _changes(number: str) -> str:
    """The package's own changelog, in Debian's form."""
    date = format_datetime(datetime.fromtimestamp(wheels.epoch(), UTC))
    return (
        f"{PACKAGE} ({number}) stable; urgency=medium\n\n  * See CHANGELOG.md.gz.\n\n"
        f" -- {_MAINTAINER}  {date}\n"
    )


def _modes(stage: Path) -> None:
    """The same for each builder, whatever its umask is."""
    executable = {stage / "usr" / "bin" / PACKAGE}
    for path in [stage, *stage.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path in executable else 0o644)
    for name, mode in _CONFFILES.items():
        (stage / name).chmod(mode)


def _control(stage: Path, debian: Debian, number: str, architecture: str) -> None:
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    size = sum(path.lstat().st_size for path in stage.rglob("*") if path.is_file())
    glibc = debian.release.glibc_minor
    fields = {
        "Package": PACKAGE,
        "Version": number,
        "Architecture": architecture,
        "Maintainer": _MAINTAINER,
        "Installed-Size": str(-(-size // 1024)),
        "Depends": f"python{debian.release.python}, libc6 (>= 2.{glibc}), ca-certificates, "
        "e2fsprogs, iptables",
        # An engine can come from elsewhere, and a gateway of a cluster needs none.
        "Recommends": "docker.io | docker-ce",
        "Suggests": "bash-completion, postgresql-client",
        "Section": "admin",
        "Priority": "optional",
        "Description": "sandbox orchestrator for AI agents\n"
        + textwrap.indent(textwrap.fill(whole["description"], _WIDTH), " ")
        + "\n .\n"
        " The control plane, the gateway of a cluster, and the command line,\n"
        " with a Python environment of their own. Sandboxes need a container\n"
        " engine on the same machine.",
    }
    control = stage / "DEBIAN"
    control.mkdir(mode=0o755)
    sums = "".join(f"{digest}  {name}\n" for name, digest in _sums(stage))
    text = "".join(f"{name}: {value}\n" for name, value in fields.items())
    (control / "control").write_text(text, encoding="utf-8")
    (control / "conffiles").write_text("".join(f"/{name}\n" for name in _CONFFILES))
    (control / "md5sums").write_text(sums, encoding="utf-8")
    for name in _SCRIPTS:
        shutil.copyfile(SOURCE / name, control / name)
    for path in control.iterdir():
        path.chmod(0o755 if path.name in _SCRIPTS else 0o644)


def _sums(stage: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(stage.rglob("*")):
        name = path.relative_to(stage).as_posix()
        if path.is_file() and not path.is_symlink() and not name.startswith(("DEBIAN/", "etc/")):
            yield name, hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()


def _output(*command: str) -> str:
    """What a command prints. Raises: CalledProcessError."""
    done = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
        env=os.environ | {"SOURCE_DATE_EPOCH": str(wheels.epoch())},
    )
    return done.stdout


def main() -> int:
    """Builds the packages and prints their paths."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    try:
        made = build(target)
    except subprocess.CalledProcessError as error:
        print(error.stdout, file=sys.stderr)
        return 1
    except (BuildError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for path in made:
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A Debian in a directory, made once from the mirror, in which packages are installed for real."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from images.base import run as run_step
from images.mirrors import serving, source_files

CACHE = Path("/var/cache/paddock-debian")
SECONDS = 600
SUITES = {12: "bookworm", 13: "trixie"}
# What the packages need, and what every test would otherwise fetch again.
_PACKAGES = (
    *("ca-certificates", "e2fsprogs", "init-system-helpers", "iptables", "util-linux", "bash"),
    *("man-db", "bash-completion"),
)
_PYTHONS = {12: "python3.11", 13: "python3.13"}
# A package manager's own notes, which an installation of anything changes.
_UNCOUNTED = ("/proc/", "/sys/", "/dev/", "/run/", "/tmp/", "/root/", "/var/cache/", "/var/log/")
_NOTES = ("/var/lib/apt/", "/var/lib/dpkg/", "/etc/ld.so.cache", "/var/lib/systemd/")
STATE = Path("/var/lib/paddock")
SOCKET = "/var/run/docker.sock"


class Done(NamedTuple):
    """How a program ended, and what it printed on both streams."""

    status: int
    text: str


def archive(number: int) -> Path:
    """A Debian as a tar archive with all that the package depends on, from the cache."""
    made = CACHE / f"{SUITES[number]}-1.tar"
    if not made.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        (mirror, *_) = serving((each.read_text() for each in source_files()), "bookworm")
        draft = CACHE / f"draft-{os.getpid()}.tar"
        packages = ",".join((*_PACKAGES, _PYTHONS[number]))
        command = ["mmdebstrap", "--variant=minbase", f"--include={packages}", SUITES[number]]
        try:
            run_step([*command, str(draft), f"deb {mirror} {SUITES[number]} main"], print)
            draft.rename(made)
        finally:
            draft.unlink(missing_ok=True)
    return made


class Chroot:
    """A Debian without a service manager, whose package scripts use this machine's engine."""

    def __init__(self, number: int, root: Path) -> None:
        self.number = number
        self.root = root

    def path(self, inside: str) -> Path:
        """Where a file of it is on this machine."""
        return self.root / inside.lstrip("/")

    def run(self, *command: str, stdin: str = "", **environment: str) -> Done:
        """Runs a program in it to its end."""
        done = subprocess.run(
            ["chroot", str(self.root), *command],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
            env=self.environment(**environment),
        )
        return Done(done.returncode, done.stdout)

    def environment(self, **more: str) -> dict[str, str]:
        """What a package manager gives the scripts of packages."""
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LC_ALL": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
            **more,
        }

    def dpkg(self, *words: str, stdin: str = "") -> Done:
        """Runs the package manager."""
        return self.run("dpkg", *words, stdin=stdin)

    def files(self) -> set[str]:
        """Every file that is there, without those that a package manager keeps for itself."""
        found = set()
        for directory, folders, names in os.walk(self.root):
            inside = f"/{os.path.relpath(directory, self.root)}".replace("/.", "", 1)
            folders[:] = [n for n in folders if not _uncounted(f"{inside}/{n}/")]
            found |= {f"{inside}/{name}" for name in (*folders, *names)}
        return {each for each in found if not _uncounted(each)}


def _uncounted(path: str) -> bool:
    return path.startswith((*_UNCOUNTED, *_NOTES))


@contextmanager
def bare(number: int, place: Path) -> Iterator[Chroot]:
    """A fresh Debian with no mounts."""
    root = place / f"debian-{number}"
    root.mkdir()
    try:
        subprocess.run(["tar", "-C", root, "-xf", archive(number)], check=True, timeout=SECONDS)
        refusal = root / "usr/sbin/policy-rc.d"
        refusal.write_text("#!/bin/sh\nexit 101\n")
        refusal.chmod(0o755)
        yield Chroot(number, root)
    finally:
        subprocess.run(["rm", "-rf", "--one-file-system", root], check=True, timeout=SECONDS)


@contextmanager
def chroot(number: int, place: Path) -> Iterator[Chroot]:
    """A fresh Debian; its `/var/lib/paddock` is this machine's, where the engine finds it, too."""
    with bare(number, place) as made, _mounted(made.root):
        yield made


@contextmanager
def _mounted(root: Path) -> Iterator[None]:
    """What a machine has mounted, and the socket of this machine's engine."""
    mounted: list[Path] = []

    def mount(*words: str, at: Path) -> None:
        at.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", *words, str(at)], check=True, timeout=SECONDS)
        mounted.append(at)

    try:
        mount("--bind", str(root), at=root)
        mount("--make-shared", at=root)
        mounted.pop()
        mount("-t", "proc", "proc", at=root / "proc")
        mount("--rbind", "/sys", at=root / "sys")
        mount("--make-rslave", at=root / "sys")
        mounted.pop()
        mount("--bind", "/dev", at=root / "dev")
        (root / "run").mkdir(exist_ok=True)
        (root / "run/docker.sock").touch()
        subprocess.run(
            ["mount", "--bind", SOCKET, root / "run/docker.sock"], check=True, timeout=SECONDS
        )
        mounted.append(root / "run/docker.sock")
        STATE.mkdir(mode=0o700)
        mount("--bind", str(STATE), at=STATE)
        mount("--make-shared", at=STATE)
        mounted.pop()
        mount("--bind", str(STATE), at=root / str(STATE).lstrip("/"))
        yield
    finally:
        for each in reversed(mounted):
            subprocess.run(["umount", "-R", "-l", each], check=False, timeout=SECONDS)
        shutil.rmtree(STATE, ignore_errors=True)

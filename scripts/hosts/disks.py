"""Makes the disks of a virtual machine: the stock system's, kept in a cache, and the project's."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from images.site import platform_options
from scripts.hosts.machine import NICE, PROXY
from scripts.hosts.systems import STOCK, System

ROOT = Path(__file__).parents[2]
# Where the project's disk is mounted in the guest.
PLACE = "srv/paddock"
SYSTEM_GIB, PROJECT_GIB = 16, 12
# Of one program; a mirror may be slow.
SECONDS = 1800

# What decides the project's environment, and what is compiled before the boot.
_INSTALLED = ("pyproject.toml", "requirements.lock", "requirements-dev.lock")
_COMPILED = ("api", "images", "orchestrator", "paddock", "sandbox_agent", "scripts")
_CLEAN = ("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root")

# Fills the example's cache.
_FETCH = """
from governed_package import PACKAGE, TEST_NEEDS
from support.sources import installed, published_source
published_source(PACKAGE)
installed(TEST_NEEDS)
"""

Report = Callable[[str], None]

# What a machine needs to run its job: a network, the proxy, the second disk, the job as a unit.
_FILES = {
    "etc/hostname": "stock\n",
    "etc/hosts": "127.0.0.1 localhost stock\n",
    "etc/fstab": f"/dev/vda / ext4 defaults 0 1\n/dev/vdb /{PLACE} ext4 defaults 0 2\n",
    # Nothing answers there: names are not looked up.
    "etc/resolv.conf": "nameserver 10.0.2.3\n",
    "etc/apt/apt.conf.d/90proxy": f'Acquire::http::Proxy "http://{PROXY[0]}:{PROXY[1]}";\n',
    "etc/systemd/network/wired.network": (
        "[Match]\nName=en* eth*\n[Network]\nAddress=10.0.2.15/24\nGateway=10.0.2.2\n"
    ),
    "etc/systemd/system/job.service": f"""\
[Unit]
Description=The job of this virtual machine
After=multi-user.target systemd-networkd-wait-online.service
RequiresMountsFor=/{PLACE}
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
WorkingDirectory=/{PLACE}
Environment=HOME=/root
ExecStart=/usr/bin/python3 -m scripts.hosts.job
StandardOutput=journal+console
TimeoutStartSec=infinity
""",
}
_UNITS = ("systemd-networkd.service", "systemd-networkd-wait-online.service")


class DiskError(Exception):
    """A disk can't be made; the message gives the reason in one line."""


def stock_tree(cache: Path, system: System, sources: list[str], report: Report) -> Path:
    """The archive of a stock system's files: made once, and kept. Raises: DiskError."""
    recipe = "\n".join((system.suite, *STOCK, *sources))
    path = cache / f"{system.name}-{_digest(recipe.encode())}.tar"
    if not path.exists():
        report(f"{system.title}: installing its packages into a tree")
        packages = f"--include={','.join(STOCK)}"
        unfinished = path.with_suffix(".part.tar")
        _run(
            [
                *("mmdebstrap", "--variant=important", packages, system.suite),
                *(str(unfinished), *sources),
            ],
            report,
        )
        unfinished.rename(path)
    return path


def system_disk(cache: Path, tree: Path, report: Report) -> tuple[Path, Path, Path]:
    """The stock system's disk, kernel and initial ramdisk: made once, and kept."""
    disk, kernel, initrd = (tree.with_suffix(end) for end in (".disk", ".kernel", ".initrd"))
    stamp = _digest(repr(_FILES).encode())
    made = tree.with_suffix(".made")
    if made.exists() and made.read_text() == stamp:
        return disk, kernel, initrd
    report("making the system's disk")
    with _unpacked(cache, tree) as root:
        shutil.copyfile(next(root.glob("boot/vmlinuz-*")), kernel)
        shutil.copyfile(next(root.glob("boot/initrd.img-*")), initrd)
        configure(root)
        _file_system(root, disk, SYSTEM_GIB)
    made.write_text(stamp)
    return disk, kernel, initrd


def copy(disk: Path, target: Path) -> None:
    """Copies a disk with its holes: what a machine writes is not in the stock one.

    Raises: DiskError.
    """
    _run(
        ["cp", "--sparse=always", "--reflink=auto", str(disk), str(target)],
        lambda _line: None,
    )


def mirrors(sources: Sequence[str]) -> tuple[str, ...]:
    """The hosts of apt's sources, with their ports."""
    return tuple(sorted({urlsplit(line.split()[1]).netloc for line in sources}))


def configure(root: Path) -> None:
    """Writes what the machine needs to run its job into the tree of a stock system."""
    for name, text in _FILES.items():
        path = root / name
        path.unlink(missing_ok=True)  # it may be a link
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / PLACE).mkdir(parents=True, exist_ok=True)
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    for unit in _UNITS:
        (wants / unit).symlink_to(f"/lib/systemd/system/{unit}")
    (root / "etc/systemd/system/graphical.target.wants").mkdir(exist_ok=True)
    job = root / "etc/systemd/system/graphical.target.wants/job.service"
    job.symlink_to("/etc/systemd/system/job.service")


def project_disk(
    target: Path,
    cache: Path,
    system: System,
    tree: Path,
    handed: Mapping[str, Path | str],
    report: Report,
) -> None:
    """Makes the disk with the project, its environment, and what is handed to the job.

    All is made within the system's own tree, by its own Python, which spares the machine minutes.
    `handed` has texts, and files and folders to copy, by their names in the project.

    Raises: DiskError.
    """
    with _unpacked(cache, tree) as root:
        project = root / PLACE
        copy_project(project)
        _environment(cache, system, tree, root, report)
        report("making the project's disk")
        _inside(root, f"python3 -m compileall -q {' '.join(_COMPILED)}", report)
        for name, content in handed.items():
            if isinstance(content, str):
                (project / name).write_text(content)
            elif content.is_dir():
                shutil.copytree(content, project / name)
            else:
                shutil.copyfile(content, project / name)
        _file_system(project, target, PROJECT_GIB)


def example_packages(cache: Path, report: Report) -> Path:
    """The cache of the example of `make run`, filled here: the machine reaches no package index.

    Raises: DiskError.
    """
    folder = cache / "example"
    settings = [f"XDG_CACHE_HOME={folder}", f"PYTHONPATH={ROOT / 'examples'}:{ROOT}"]
    _run(["env", *settings, sys.executable, "-c", _FETCH], report)
    return folder


def _environment(cache: Path, system: System, tree: Path, root: Path, report: Report) -> None:
    """Makes the project's `.venv` in the unpacked tree, or takes the one that is kept."""
    inputs = b"".join((ROOT / name).read_bytes() for name in _INSTALLED)
    kept = cache / f"{system.name}-venv-{_digest(inputs + tree.name.encode())}.tar"
    project = root / PLACE
    if kept.exists():
        _run(["tar", "-C", str(project), "-xf", str(kept)], report)
        return
    report("installing the project's Python packages")
    _wheels(root / "wheels", system, report)
    _inside(root, "PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels scripts/venv.sh dev", report)
    made = [".venv", *(each.name for each in project.glob("*.egg-info"))]
    unfinished = kept.with_suffix(".part.tar")
    _run(["tar", "-C", str(project), "-cf", str(unfinished), *made], report)
    unfinished.rename(kept)


def _inside(root: Path, command: str, report: Report) -> None:
    """Runs a shell's command in the project within the tree."""
    script = f"cd /{PLACE} && {command}"
    _run(["chroot", str(root), "env", "-i", *_CLEAN, "sh", "-c", script], report)


def _wheels(target: Path, system: System, report: Report) -> None:
    """Fetches the locked packages for the system's Python; also what builds the project."""
    options = [f"--python-version={system.python}", "--implementation=cp", "--only-binary=:all:"]
    options += [*platform_options("amd64"), f"--dest={target}"]
    pip = [sys.executable, "-m", "pip", "download", "--progress-bar=off", "-q", *options]
    lock = ROOT / "requirements-dev.lock"
    _run([*pip, "--no-deps", "--require-hashes", f"--requirement={lock}"], report)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    _run([*pip, *project["build-system"]["requires"]], report)


def copy_project(target: Path) -> None:
    """Copies the files of this checkout, as they are, without what Git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=SECONDS,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        source, copy = ROOT / name, target / name
        if source.is_file():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, copy, follow_symlinks=False)


def _file_system(tree: Path, target: Path, gib: int) -> None:
    target.unlink(missing_ok=True)
    tree.chmod(0o755)
    options = ["-q", "-t", "ext4"]
    _run(["mke2fs", *options, "-d", str(tree), str(target), f"{gib}G"], lambda _line: None)


@contextmanager
def _unpacked(cache: Path, archive: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tree-", dir=cache) as name:
        _run(["tar", "-C", name, "--numeric-owner", "-xf", str(archive)], lambda _line: None)
        yield Path(name)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def _run(arguments: list[str], report: Report) -> None:
    """Runs a program to its end and shows its output if it fails. Raises: DiskError."""
    try:
        done = subprocess.run(
            [*NICE, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=SECONDS,
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        raise DiskError(str(error)) from error
    if done.returncode:
        for line in done.stdout.splitlines()[-20:]:
            report(line)
        raise DiskError(f"{arguments[0]} ended with exit status {done.returncode}, see above")

"""Boots stock systems and tests Paddock in them: `make hosts`, or `python -m scripts.hosts`.

Each system is booted under QEMU, one after the other, with KVM where the processor has it. In it,
the repository as it is here is set up by `make run`, as a newcomer would; then come the doctor,
tests, and a restart of the machine while sessions are at work.
"""

import argparse
import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import date
from pathlib import Path

from docker.errors import DockerException
from requests.exceptions import RequestException

from images import base
from images.progress import detail, failure, step
from images.recipes import BASE_PACKAGES, BASE_UNUSED
from scripts import docs
from scripts.hosts import disks, machine, results, suite
from scripts.hosts.job import CACHE
from scripts.hosts.machine import Machine
from scripts.hosts.results import Result
from scripts.hosts.systems import SYSTEMS, System

MIRROR = "http://deb.debian.org/debian"
SECURITY = "http://deb.debian.org/debian-security"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="make hosts", description=(__doc__ or "").split("\n")[0])
    option = parser.add_argument
    option("--system", action="append", choices=SYSTEMS, help="only this one; may be repeated")
    option("--short", action="store_true", help="the first third of the tests")
    titles = [topic.title for topic in suite.TOPICS]
    option("--topic", action="append", choices=titles, help="only its tests; the rest is kept")
    option("--test", action="append", help="only this test, as pytest names it; stores no results")
    option("--restart", action="store_true", help="no test but the restart; stores no results")
    option("--keep", action="store_true", help="keep the disk of the project and the console's log")
    option("--cache", type=Path, default=_default_cache(), metavar="DIR", help="for disks")
    option("--mirror", default=MIRROR, metavar="URL", help=f"of Debian (default: {MIRROR})")
    option("--security", default=SECURITY, metavar="URL", help="of Debian's security updates")
    option("--no-base", action="store_true", help="have the guest make its own base image")
    option("--minutes", type=float, default=240, help="the longest time for one system")
    return parser.parse_args(arguments)


def _default_cache() -> Path:
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "paddock" / "hosts"


def examine(system: System, options: argparse.Namespace) -> Result:
    """Boots one system and returns what its job said. Raises: DiskError."""
    cache: Path = options.cache
    cache.mkdir(parents=True, exist_ok=True)
    sources = system.sources(options.mirror, options.security)
    tree = disks.stock_tree(cache, system, sources, detail)
    system_disk, kernel, initrd = disks.system_disk(cache, tree, detail)
    project, console = cache / f"{system.name}-project.disk", cache / f"{system.name}-console.log"
    used = cache / f"{system.name}-used.disk"
    handed: dict[str, Path | str] = {"job.json": json.dumps(plan(options))}
    handed[CACHE] = disks.example_packages(cache, detail)
    if not options.no_base and (image := handed_base(cache)) is not None:
        handed["base.tar"] = image
    result = Result(system.title, _described(options))
    try:
        disks.project_disk(project, cache, system, tree, handed, detail)
        disks.copy(system_disk, used)
        console.unlink(missing_ok=True)
        booted = Machine(kernel, initrd, used, project, console)
        _run(booted, result, disks.mirrors(sources), options.minutes * 60)
    finally:
        used.unlink(missing_ok=True)
        if not options.keep:
            project.unlink(missing_ok=True)
            if not result.faults():
                console.unlink(missing_ok=True)
    if console.exists():
        step(f"the console's log is {console}")
    return result


def plan(options: argparse.Namespace) -> dict[str, object]:
    """What the job does after the doctor."""
    if options.restart:
        return {"tests": [], "restart": True}
    tests = options.test or suite.named(short=options.short, topics=options.topic or ())
    return {"tests": tests, "restart": not options.test}


def _run(booted: Machine, result: Result, mirrors: tuple[str, ...], seconds: float) -> None:
    step(f"booting {result.title} {'with KVM' if _kvm() else 'by emulation, which is slow'}")
    until = time.monotonic() + seconds
    for boots in itertools.count(1):
        left = max(0.0, until - time.monotonic())
        with machine.running(machine.command(booted, mirrors, kvm=_kvm()), left) as lines:
            for line in lines:
                if said := result.take(line):
                    detail(said)
        # A machine that ends unasked, by a panic for example, is not booted again.
        if result.restarts < boots:
            break


def _described(options: argparse.Namespace) -> str:
    form = "a third of the tests" if options.short else "all tests"
    if options.topic:
        form += f" of {', '.join(options.topic)}"
    return f"{date.today()}, {form}, {'KVM' if _kvm() else 'emulated'}"


def _kvm() -> bool:
    return machine.has_kvm(Path("/proc/cpuinfo").read_text())


def handed_base(cache: Path) -> Path | None:
    """The base image that this host's engine has, as an archive for the guest; None without one.

    A guest would make the same from the same packages, which takes minutes under emulation.
    """
    lists = ((disks.ROOT / name).read_bytes() for name in (BASE_PACKAGES, BASE_UNUSED))
    try:
        with closing(base.connect(disks.SECONDS)) as client:
            for name in (base.local_name(*lists), base.REGISTRY_BASE):
                if base.inspect(client, name) is not None:
                    path = cache / "base.tar"
                    with path.open("wb") as archive:
                        archive.writelines(client.get_image(name))
                    return path
    except (DockerException, RequestException):
        pass  # this host needs no engine
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Examines the systems and returns the exit status: 1 if anything is not as it must be."""
    options = parse(arguments)
    # An end from outside ends the machine, too.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    if os.geteuid() != 0:
        failure("system disks have files of root: run as root")
        return 1
    found: dict[str, Result] = {}
    for name in options.system or SYSTEMS:
        try:
            found[name] = examine(SYSTEMS[name], options)
        except disks.DiskError as error:
            failure(f"{name}: {error}")
            return 1
    if not options.test and not options.restart:
        docs.keep_hosts(results.kept(results.load(docs.EXAMINED), found, add=bool(options.topic)))
    print(results.shown(results.table(list(found.values()))))
    faults = [f"{result.title}: {fault}" for result in found.values() for fault in result.faults()]
    for fault in faults:
        failure(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

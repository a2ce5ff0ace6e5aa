"""The Debian package, installed by the package manager of each Debian: `make test-deb` runs this.

A Debian in a directory has no service manager. So the service's command is run as its unit has it,
with its variables and its capabilities, against this machine's engine.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scripts.packaging import deb
from tests.support.chroot import SECONDS, STATE, Chroot, bare, chroot
from tests.support.plane import uid_base

OLDER = "0.1.0~1"
OWN_LINE = "# the administrator's own line\n"
TOML = "/etc/paddock/paddock.toml"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """This build's package of each Debian."""
    found = os.environ.get("PADDOCK_TEST_DEBS")
    made = deb.build(tmp_path_factory.mktemp("debs")) if found is None else Path(found).iterdir()
    return {
        each.number: path
        for path in made
        for each in deb.DEBIANS
        if f"+deb{each.number}_" in path.name
    }


@pytest.fixture(params=[each.number for each in deb.DEBIANS])
def debian(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Chroot]:
    if STATE.exists():
        pytest.skip(f"{STATE} exists: this machine has a control plane of its own")
    with chroot(request.param, tmp_path) as made:
        yield made


def older(package: Path, target: Path) -> Path:
    """The same package as an earlier build, which had another paddock.toml."""
    tree = target / "older"
    subprocess.run(["dpkg-deb", "-R", package, tree], check=True, timeout=SECONDS)
    control = tree / "DEBIAN" / "control"
    control.write_text(re.sub(r"(?m)^Version: .*$", f"Version: {OLDER}", control.read_text()))
    with (tree / TOML.lstrip("/")).open("a") as file:
        file.write("# of an earlier version\n")
    made = target / "older.deb"
    deb.pack(tree, made)
    shutil.rmtree(tree)
    return made


def unit(debian: Chroot) -> dict[str, list[str]]:
    """The settings of the service's section, in the installed unit."""
    (units,) = (each.units for each in deb.DEBIANS if each.number == debian.number)
    path = debian.path(f"{units}/paddock.service")
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


@contextmanager
def serving(debian: Chroot) -> Iterator[None]:
    """The service's command, as a service manager would start and stop it."""
    described = unit(debian)
    variables = dict(each.split("=", 1) for each in shlex.split(" ".join(described["Environment"])))
    for line in debian.path("/etc/paddock/environment").read_text().splitlines():
        if not line.startswith("#") and "=" in line:
            name, _, value = line.partition("=")
            variables[name] = value
    names = " ".join(described["CapabilityBoundingSet"]).lower().replace("cap_", "+").split()
    assert described["NoNewPrivileges"] == ["yes"]
    confined = ["setpriv", f"--bounding-set=-all,{','.join(names)}", "--no-new-privs"]
    (command,) = described["ExecStart"]
    process = subprocess.Popen(
        ["chroot", str(debian.root), *confined, *shlex.split(command)],
        env=debian.environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        assert process.stdout is not None
        log: list[str] = []
        try:
            for line in process.stdout:
                log.append(line)
                if "listening on" in line:
                    break
            else:
                pytest.fail("".join(log))
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            rest, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, rest


def paddock(debian: Chroot, *words: str) -> Any:
    done = debian.run("paddock", *words, "--json")
    assert done.status == 0, done.text
    return json.loads(done.text)


def test_it_is_installed_upgraded_removed_and_purged(
    debian: Chroot, packages: dict[int, Path], tmp_path: Path, sandbox_image: str
) -> None:
    before = debian.files()
    package = packages[debian.number]
    shutil.copyfile(older(package, tmp_path), debian.path("/root/older.deb"))
    shutil.copyfile(package, debian.path("/root/newer.deb"))

    done = debian.run("apt-get", "-qy", "install", "--no-install-recommends", "/root/older.deb")
    assert done.status == 0, done.text
    assert "paddock doctor" in done.text
    assert "something failed in paddock itself" not in done.text
    assert debian.run("dpkg", "--verify", "paddock").text == ""
    assert debian.run("paddock", "--version").text.startswith("paddock 0.1.0 (commit ")
    assert STATE.stat().st_mode & 0o777 == 0o700
    page = debian.run("man", "--warnings", "paddock", MANPAGER="cat", MANWIDTH="100").text
    assert "paddock sessions create" in page
    completed = debian.run("bash", "-c", _COMPLETION).text.split()
    assert completed == ["sessions"]

    # The service runs with what its unit allows; a command is begun.
    with debian.path("/etc/paddock/environment").open("a") as file:
        file.write("PADDOCK_LISTEN=127.0.0.1:0\nPADDOCK_PREVIEW_LISTEN=off\n")
        file.write(
            f"PADDOCK_LEVEL_IMAGES={{}}\nPADDOCK_IMAGE={sandbox_image}\nPADDOCK_UID_BASE={uid_base()}\n"
        )
    with serving(debian):
        made = paddock(debian, "sessions", "create", "--id", "kept", "--level", "high")
        assert made["id"] == "kept"
        done = debian.run("paddock", "files", "put", "kept", "/etc/debian_version", "before.txt")
        assert done.status == 0, done.text
        begun = debian.run("paddock", "exec", "--detach", "kept", "--", "sleep", "20").text.split()

    # An upgrade keeps the administrator's files, and asks about those that both have changed.
    with debian.path(TOML).open("a") as file:
        file.write(OWN_LINE)
    asked = debian.dpkg("--install", "/root/newer.deb")
    assert (asked.status, "conffile" in asked.text) == (1, True), asked.text
    done = debian.dpkg("--install", "--force-confold", "/root/newer.deb")
    assert done.status == 0, done.text
    assert debian.path(TOML).read_text().endswith(OWN_LINE)
    assert debian.path(f"{TOML}.dpkg-dist").exists()
    assert "PADDOCK_LISTEN" in debian.path("/etc/paddock/environment").read_text()
    with serving(debian):
        assert paddock(debian, "sessions", "show", "kept")["status"] == "active"
        assert debian.run("paddock", "exec", "kept", "--", "ls").text == "before.txt\n"
        # The command has gone on meanwhile, and ends as it would have.
        assert debian.run("paddock", "wait", "kept", begun[0]).status == 0

    # A removal leaves nothing that runs, and everything that is kept.
    (kept,) = sandboxes()
    assert kept
    done = debian.run("apt-get", "-qy", "remove", "paddock")
    assert (done.status, "removed sandboxes: 1" in done.text) == (0, True), done.text
    assert sandboxes() == []
    assert (STATE / "paddock.db").exists()
    assert debian.path(TOML).exists()
    assert not debian.path("/usr/lib/paddock").exists()

    done = debian.run("apt-get", "-qy", "purge", "paddock")
    assert done.status == 0, done.text
    assert list(STATE.iterdir()) == []
    assert debian.files() - before - {str(STATE)} == set()


def test_without_an_engine_it_is_installed_all_the_same(
    debian: Chroot, packages: dict[int, Path]
) -> None:
    subprocess.run(["umount", debian.path("/run/docker.sock")], check=True, timeout=SECONDS)
    shutil.copyfile(packages[debian.number], debian.path("/root/paddock.deb"))
    done = debian.run("apt-get", "-qy", "install", "--no-install-recommends", "/root/paddock.deb")
    assert done.status == 0, done.text
    assert "something is missing" in done.text
    assert debian.run("apt-get", "-qy", "purge", "paddock").status == 0


@pytest.mark.skipif(shutil.which("lintian") is None, reason="needs lintian")
def test_debians_own_checks_find_no_error(packages: dict[int, Path]) -> None:
    """They look at the contents: one package has those of all, but for the Python."""
    check = ["lintian", "--fail-on=error,warning", str(packages[13])]
    done = subprocess.run(check, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout


def test_in_a_chroot_without_mounts_it_is_installed_and_purged(
    packages: dict[int, Path], tmp_path: Path
) -> None:
    """As where an image of a machine is built."""
    with bare(12, tmp_path) as debian:
        before = debian.files()
        shutil.copyfile(packages[12], debian.path("/root/paddock.deb"))
        done = debian.dpkg("--install", "/root/paddock.deb")
        assert done.status == 0, done.text
        assert "/proc is not mounted, so nothing can be examined" in done.text
        done = debian.dpkg("--purge", "paddock")
        assert (done.status, "cannot" in done.text) == (0, False), done.text
        assert debian.files() - before == set()


_COMPLETION = """
source /usr/share/bash-completion/completions/paddock
COMP_WORDS=(paddock sess) COMP_CWORD=1
_paddock_completion paddock
echo "${COMPREPLY[@]}"
"""


def sandboxes() -> list[str]:
    """The containers of the state directory's control plane."""
    instance = (STATE / "instance").read_text().strip()
    label = f"label=paddock.instance={instance}"
    command = ["docker", "ps", "-aq", "--filter", label, "--filter", "label=paddock.session"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
    return done.stdout.split()

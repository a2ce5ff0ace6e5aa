"""The set-up scripts on systems that are not this one: what they say, and that they change nothing.

Each runs in a copy of the repository's scripts, with a path that has only what a test puts there,
and with the files of another system.
"""

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.limits import PROGRAM_SECONDS
from tests.support.sources import ROOT

# What the scripts use of every system.
_TOOLS = (
    *("bash", "sh", "awk", "cat", "dirname", "env", "grep"),
    *("mkdir", "paste", "rm", "sed", "tail", "tr"),
)
SYSTEMS = {
    "debian-12": 'ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n',
    "ubuntu-22.04": "ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=jammy\nUBUNTU_CODENAME=jammy\n",
    "ubuntu-24.04": "ID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n",
    "mint": 'ID=linuxmint\nID_LIKE="ubuntu debian"\nVERSION_CODENAME=x\nUBUNTU_CODENAME=jammy\n',
    "fedora": "ID=fedora\n",
    "rocky": 'ID="rocky"\nID_LIKE="rhel centos fedora"\n',
    "amazon": 'ID="amzn"\nID_LIKE="fedora"\n',
    "arch": "ID=arch\n",
    "manjaro": "ID=manjaro\nID_LIKE=arch\n",
    "alpine": "ID=alpine\n",
    "leap": 'ID="opensuse-leap"\nID_LIKE="suse opensuse"\n',
    "slackware": "ID=slackware\n",
}
# What each is told to run for a Python, an engine and a file system's program.
_PAGE = "install a Docker engine (https://docs.docker.com/engine/install/)"
_ENABLE = "systemctl enable --now docker"
_DEBIAN = "apt-get install python3 python3-venv docker.io iptables e2fsprogs"
_JAMMY = "apt-get install python3.11 python3.11-venv docker.io iptables e2fsprogs"
TOLD = {
    "debian-12": [_DEBIAN, _ENABLE],
    "ubuntu-22.04": [_JAMMY, _ENABLE],
    "ubuntu-24.04": [_DEBIAN, _ENABLE],
    "mint": [_JAMMY, _ENABLE],
    "fedora": ["dnf install python3 moby-engine e2fsprogs", _ENABLE],
    "rocky": ["dnf install python3.12 e2fsprogs", _PAGE, _ENABLE],
    "amazon": ["dnf install python3.12 docker e2fsprogs", _ENABLE],
    "arch": ["pacman -S python docker e2fsprogs", _ENABLE],
    "manjaro": ["pacman -S python docker e2fsprogs", _ENABLE],
    "alpine": [
        "apk add python3 docker e2fsprogs",
        "rc-update add docker default && rc-service docker start",
    ],
    "leap": ["zypper install python312 docker e2fsprogs", _ENABLE],
    "slackware": [
        "install Python 3.11 or newer with its venv module",
        _PAGE,
        "install mkfs.ext4 (e2fsprogs)",
        _ENABLE,
    ],
}


def manager_of(system: str) -> str:
    """The program that installs packages there, if it has any."""
    return TOLD[system][0].partition(" ")[0]


class Done(NamedTuple):
    """How a script ended, what it said, and the calls of programs that would change something."""

    status: int
    said: str
    calls: list[str]


class Host:
    """Another system: its programs, its files, and a copy of the scripts."""

    def __init__(self, root: Path, release: str) -> None:
        self.root = root / "root"
        self.programs = root / "bin"
        self.project = root / "project"
        self._calls = root / "calls"
        for directory in (self.programs, self.root / "etc"):
            directory.mkdir(parents=True)
        shutil.copytree(ROOT / "scripts", self.project / "scripts")
        (self.root / "etc/os-release").write_text(release)
        for tool in _TOOLS:
            (self.programs / tool).symlink_to(str(shutil.which(tool)))
        self.program("uname", "echo Linux")
        self.user(0)

    def user(self, number: int) -> None:
        """Who runs the scripts."""
        self.program("id", f"echo {number}")

    def program(self, name: str, script: str = "exit 0") -> None:
        """Adds a program to the path."""
        path = self.programs / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!{shutil.which('sh')}\n{script}\n")
        path.chmod(0o755)

    def noted(self, name: str, script: str = "") -> None:
        """Adds a program whose calls are noted."""
        self.program(name, f'echo "{name} $*" >>{self._calls}\n{script}')

    def file(self, name: str, text: str) -> None:
        """Adds a file of the system."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def engine_answers(self, script: str = "exit 0") -> None:
        """Adds an environment whose `images engine` does that."""
        folder = self.project / ".venv/bin"
        folder.mkdir(parents=True)
        (folder / "python").write_text(f"#!{shutil.which('sh')}\n{script}\n")
        (folder / "python").chmod(0o755)

    def run(self, script: str, *arguments: str, **variables: str) -> Done:
        """Runs a script of the repository, or bash with a text that uses its functions."""
        path = self.project / "scripts" / script
        run = [str(path), *arguments] if path.exists() else ["bash", "-c", script]
        done = subprocess.run(
            run,
            cwd=self.project,
            env={"PATH": str(self.programs), "HOST_ROOT": str(self.root), **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PROGRAM_SECONDS,
            check=False,
        )
        calls = self._calls.read_text().splitlines() if self._calls.exists() else []
        return Done(done.returncode, done.stdout, calls)

    def files(self) -> set[Path]:
        """Everything that is there."""
        return set(self.root.rglob("*")) | set(self.project.rglob("*"))


@pytest.fixture
def hosts(tmp_path: Path) -> dict[str, Host]:
    return {name: Host(tmp_path / name, release) for name, release in SYSTEMS.items()}


def test_what_is_missing_is_said_at_once_in_the_system_s_own_words(hosts: dict[str, Host]) -> None:
    for name, host in hosts.items():
        host.user(1000)
        for manager in ("apt-get", "dnf", "pacman", "apk", "zypper", "systemctl"):
            host.noted(manager)
        before = host.files()
        done = host.run("prerequisites.sh")
        assert done.status == 1, name
        lines = [line.strip() for line in done.said.splitlines()]
        assert lines[-len(TOLD[name]) :] == TOLD[name], name
        said = lines[-len(TOLD[name]) - 1]
        assert said.startswith("As root, `make run` installs it") == (manager_of(name) == "apt-get")
        assert done.calls == [], name
        assert host.files() == before, name


def test_where_nothing_is_missing_nothing_is_said(hosts: dict[str, Host]) -> None:
    for name, host in hosts.items():
        host.program("python3")
        host.program("dockerd")
        assert host.run("prerequisites.sh") == Done(0, "", []), name


def test_an_engine_elsewhere_or_behind_a_socket_is_one(tmp_path: Path) -> None:
    host = Host(tmp_path, SYSTEMS["fedora"])
    host.program("python3")
    assert "a Docker engine" in host.run("prerequisites.sh").said
    assert host.run("prerequisites.sh", DOCKER_HOST="tcp://10.0.0.1:2375").status == 0
    (host.root / "var/run").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as server:
        directory = os.open(host.root / "var/run", os.O_PATH)
        server.bind(f"/proc/self/fd/{directory}/docker.sock")
        os.close(directory)
        assert host.run("prerequisites.sh").status == 0


def test_debian_s_root_has_everything_installed_for_it(hosts: dict[str, Host]) -> None:
    for name in ("debian-12", "ubuntu-22.04", "ubuntu-24.04", "mint"):
        hosts[name].program("apt-get")
        assert hosts[name].run("prerequisites.sh") == Done(0, "", []), name


def test_a_mac_is_told_of_virtual_machines(tmp_path: Path) -> None:
    host = Host(tmp_path, "")
    (host.root / "etc/os-release").unlink()
    host.program("uname", "echo Darwin")
    done = host.run("prerequisites.sh")
    assert done.status == 1
    assert "limactl start --name=paddock template:debian-13" in done.said


def test_a_system_without_bash_is_told_so(tmp_path: Path) -> None:
    host = Host(tmp_path, SYSTEMS["alpine"])
    host.program("python3")
    host.program("dockerd")
    (host.programs / "bash").unlink()
    assert "apk add bash e2fsprogs" in host.run("prerequisites.sh").said


@pytest.mark.parametrize(
    ("script", "program", "package"),
    [
        ("browser.sh", "chromium", "chromium"),
        ("compiler.sh", "gcc", "gcc glibc-static"),
        ("emulator.sh", "mmdebstrap", "qemu-system-x86-core mmdebstrap e2fsprogs"),
        ("compose.sh", "docker-compose", "docker-compose"),
        ("venv.sh", "python3", "python3"),
        ("engine.sh", "dockerd", "moby-engine e2fsprogs"),
    ],
)
def test_each_script_names_its_packages_and_installs_none(
    tmp_path: Path, script: str, program: str, package: str
) -> None:
    host = Host(tmp_path, SYSTEMS["fedora"])
    host.engine_answers("exit 1")
    if script == "venv.sh":
        shutil.rmtree(host.project / ".venv")
    host.noted("dnf")
    host.noted("apt-get")  # as Fedora has it: a package
    done = host.run(script)
    assert done.status == 1
    assert f"dnf install {package}\n" in done.said
    assert done.calls == []


@pytest.mark.parametrize(
    ("script", "packages"),
    [
        ("browser.sh", "chromium"),
        ("compiler.sh", "gcc libc6-dev"),
        ("compose.sh", "docker-compose"),
        ("emulator.sh", "qemu-system-x86 mmdebstrap e2fsprogs"),
        ("venv.sh", "python3.11 python3.11-venv"),
    ],
)
def test_on_ubuntu_root_has_them_installed(tmp_path: Path, script: str, packages: str) -> None:
    host = Host(tmp_path, SYSTEMS["mint" if script == "venv.sh" else "ubuntu-24.04"])
    host.noted("apt-get")
    calls = host.run(script).calls
    install = [line.partition("--no-install-recommends ")[2] for line in calls if "recomm" in line]
    assert install == [packages]


def test_the_parser_of_profiles_comes_with_the_engine(tmp_path: Path) -> None:
    """An engine of Debian 12 starts no container without it, also one that is there already."""
    for answers in ("exit 1", "exit 0"):
        host = Host(tmp_path / answers.replace(" ", ""), SYSTEMS["debian-12"])
        host.engine_answers(answers)
        host.program("mkfs.ext4")
        host.noted("apt-get")
        host.file("sys/module/apparmor/parameters/enabled", "Y\n")
        if answers == "exit 0":
            host.program("dockerd")
        packages = "apparmor" if answers == "exit 0" else "docker.io iptables apparmor"
        (install,) = [line for line in host.run("engine.sh").calls if " install " in line]
        assert install.endswith(f"--no-install-recommends {packages}")


@pytest.mark.parametrize("enabled", ["N\n", None])
def test_without_apparmor_no_parser_is_installed(tmp_path: Path, enabled: str | None) -> None:
    host = Host(tmp_path, SYSTEMS["debian-12"])
    host.engine_answers()
    host.program("mkfs.ext4")
    host.program("dockerd")
    host.noted("apt-get")
    if enabled is not None:
        host.file("sys/module/apparmor/parameters/enabled", enabled)
    assert host.run("engine.sh") == Done(0, "", [])
    host.file("sys/module/apparmor/parameters/enabled", "Y\n")
    host.program("apparmor_parser")
    assert host.run("engine.sh") == Done(0, "", [])


def test_the_engine_s_unit_is_started_and_its_failure_shown(tmp_path: Path) -> None:
    host = Host(tmp_path, SYSTEMS["fedora"])
    host.program("mkfs.ext4")
    host.program("dockerd", "exit 7")
    (host.root / "run/systemd/system").mkdir(parents=True)
    # It answers once the unit has been started.
    host.noted("systemctl", f"exec 5>{host.root}/started")
    host.engine_answers(f'[ -e "{host.root}/started" ]')
    assert host.run("engine.sh").calls == ["systemctl start docker.service"]
    (host.root / "started").unlink()
    host.program("systemctl", "exit 1")
    host.program("journalctl", "echo the engine broke")
    done = host.run("engine.sh")
    assert done.status == 1
    assert "the engine broke" in done.said
    assert "systemd can't start docker.service" in done.said


def test_the_first_python_that_is_new_enough_is_taken(tmp_path: Path) -> None:
    host = Host(tmp_path, SYSTEMS["ubuntu-22.04"])
    look = ". scripts/packages.sh; find_python"
    assert host.run(look) == Done(1, "", [])
    host.program("python3", "exit 1")  # too old
    host.program("python3.12")
    assert host.run(look).said == "python3.12\n"
    assert host.run(look, PYTHON="python3").status == 1
    host.program("python3")
    assert host.run(look).said == "python3\n"


def test_a_python_of_one_s_own_that_is_too_old_is_named(tmp_path: Path) -> None:
    host = Host(tmp_path, SYSTEMS["debian-12"])
    host.program("python3.9", "exit 1")
    host.noted("apt-get")
    done = host.run("venv.sh", PYTHON="python3.9")
    assert "PYTHON: python3.9 is not Python 3.11 or newer" in done.said
    assert (done.status, done.calls) == (1, [])

"""The job within a virtual machine: `make run`, the doctor, the tests, a restart of the machine.

`python3 -m scripts.hosts.job` in the project's folder, as root, at each boot. It reads `job.json`,
writes JSON lines to the second serial port, and shows the programs' output on the console. Standard
library only: it begins before anything is installed.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = "/dev/ttyS1"
# What the example of `make run` has fetched, in the project's folder.
CACHE = "example-cache"
# It is there after the restart of the machine.
RESTARTED = "restarted.json"
_PYTHON = ".venv/bin/python"
# Tests examine what happens, not how soon: an emulated machine may be fifty times slower than its
# host. `make run` and the doctor have the usual time-outs.
_PATIENT = {"PADDOCK_ENGINE_TIMEOUT": "300", "PADDOCK_HELLO_TIMEOUT": "300"}
# A state directory of its own, and the number of sessions that suspends the first one.
_APART = {"PADDOCK_STATE_DIR": "restarted", "PADDOCK_MAX_ACTIVE": "5", **_PATIENT}
_SYSRQ = "/proc/sysrq-trigger"
# Of one step. The runner on the host limits the whole.
SECONDS = 7200
# The engine's client of the project, since a system may have no `docker` program.
_LOAD = """
import docker
client = docker.APIClient(version="auto", timeout=1800)
with open("base.tar", "rb") as image:
    for line in client.load_image(image):
        print(line)
"""


def tell(**said: Any) -> None:
    """Writes one result."""
    with open(RESULTS, "a", encoding="utf-8") as results:
        results.write(json.dumps(said) + "\n")


def step(name: str, arguments: list[str], more: Mapping[str, str] | None = None) -> int:
    """Runs a program to its end, and tells its exit status and the seconds that it took."""
    began = time.monotonic()
    print(f"==== {name}", flush=True)
    try:
        status = subprocess.run(
            arguments,
            env=os.environ | (more or {}),
            stdin=subprocess.DEVNULL,
            timeout=SECONDS,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        status = 124  # as timeout(1)
    tell(kind="step", name=name, status=status, seconds=round(time.monotonic() - began))
    return status


def facts() -> dict[str, str]:
    """What the machine says of itself."""
    release = Path("/etc/os-release").read_text(encoding="utf-8")
    named = dict(line.split("=", 1) for line in release.splitlines() if "=" in line)
    return {
        "system": named.get("PRETTY_NAME", "").strip('"'),
        "kernel": os.uname().release,
        "python": "{}.{}".format(*sys.version_info),
        "uptime": Path("/proc/uptime").read_text(encoding="ascii").split()[0],
    }


def examine() -> None:
    """Tells what the doctor finds."""
    done = subprocess.run(
        [".venv/bin/paddock", "doctor", "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=SECONDS,
        check=False,
    )
    print(done.stdout.decode(errors="replace"), flush=True)
    try:
        tell(kind="doctor", status=done.returncode, checks=json.loads(done.stdout)["checks"])
    except (ValueError, KeyError):
        tell(kind="doctor", status=done.returncode, checks=[])


def restart() -> None:
    """Starts sessions, and restarts the machine at once, as a loss of power does.

    Returns if that fails. What the engine and the tests have written is on the disk before, as it
    would be some seconds later.
    """
    os.sync()
    if _control_plane("start before the restart") != 0:
        return
    if step("sessions before the restart", _restarted("leave"), _APART) != 0:
        return
    tell(kind="restart")
    Path(_SYSRQ).write_text("b", encoding="ascii")


def after_restart() -> None:
    """Starts the control plane again, and examines what it makes of its sessions."""
    if _control_plane("start after the restart") == 0:
        step("sessions after the restart", _restarted("check"), _APART)
        step("stop after the restart", ["make", "stop"], _APART)
    tell(kind="end")


def _control_plane(name: str) -> int:
    return step(name, [_PYTHON, "-m", "scripts.service", "start"], _APART)


def _restarted(what: str) -> list[str]:
    return [_PYTHON, "-m", "tests.support.restarted_host", what]


def test(tests: list[str]) -> None:
    """Runs the tests, which tell their results themselves."""
    pytest = [_PYTHON, "-m", "pytest", "-v"]
    plugins = ["-p", "scripts.hosts.telling", "-p", "no:cacheprovider"]
    step("tests", [*pytest, *plugins, *tests], {"PADDOCK_TOLD": RESULTS, **_PATIENT})


def main() -> None:
    """Does everything in turn; a step that fails does not keep the others from being tried."""
    plan = json.loads(Path("job.json").read_text(encoding="utf-8"))
    if Path(RESTARTED).exists():
        after_restart()
        return
    tell(kind="facts", **facts())
    if Path("base.tar").exists() and step("make engine", ["make", "engine"]) == 0:
        step("load the base image", [_PYTHON, "-c", _LOAD])
    step("make run", ["make", "run"], {"XDG_CACHE_HOME": str(Path(CACHE).resolve())})
    examine()
    step("make stop", ["make", "stop"])
    if plan["tests"]:
        test(plan["tests"])
    if plan["restart"]:
        restart()
    tell(kind="end")


if __name__ == "__main__":
    main()

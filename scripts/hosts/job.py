"""The job within a virtual machine: `make run`, the doctor, the tests; then the machine ends.

`python3 -m scripts.hosts.job` in the project's folder, as root. It reads `job.json`, writes JSON
lines to the second serial port, and shows the programs' output on the console. Standard library
only: it begins before anything is installed.
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
_PYTHON = ".venv/bin/python"
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


def main() -> None:
    """Does everything in turn; a step that fails does not keep the others from being tried."""
    tests = json.loads(Path("job.json").read_text(encoding="utf-8"))["tests"]
    tell(kind="facts", **facts())
    if Path("base.tar").exists() and step("make engine", ["make", "engine"]) == 0:
        step("load the base image", [_PYTHON, "-c", _LOAD])
    step("make run", ["make", "run"], {"XDG_CACHE_HOME": str(Path(CACHE).resolve())})
    examine()
    step("make stop", ["make", "stop"])
    pytest = [
        _PYTHON,
        "-m",
        "pytest",
        "-v",
        "-p",
        "scripts.hosts.telling",
        "-p",
        "no:cacheprovider",
    ]
    step("tests", [*pytest, *tests], {"PADDOCK_TOLD": RESULTS})
    tell(kind="end")


if __name__ == "__main__":
    main()

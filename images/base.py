"""Chooses the base of the images.

In this order: the image that `PADDOCK_BASE_IMAGE` names; a base made here earlier; Debian's image
from a registry; a base made here from Debian packages. So an engine without a registry builds the
same image as one with a registry. A newer Debian is chosen in the same order, and is not there if
none of these ways leads to it.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound
from docker.utils import kwargs_from_env
from requests.exceptions import RequestException

from images.errors import BuildError
from images.mirrors import serving, source_files
from images.releases import codename

REGISTRY_BASE = "debian:bookworm-slim"
LOCAL_BASE = "paddock/base"
# A registry that is silent for this long counts as absent.
PULL_SILENCE_SECONDS = 30
MAKE_SECONDS = 900

# apt settings for reaching its mirrors, which the base's packages need too.
_APT_SETTING = re.compile(r"Acquire::(https?|Retries|Check-[\w-]+)\b.*;")

Report = Callable[[str], None]


def connect(timeout: int) -> docker.APIClient:
    """A client for the control plane's engine; `timeout` limits its silence, in seconds."""
    arguments = kwargs_from_env()
    if host := os.environ.get("PADDOCK_DOCKER_HOST"):
        arguments["base_url"] = host
    return docker.APIClient(version="auto", timeout=timeout, **arguments)


def choose(client: docker.APIClient, packages: bytes, unused: bytes, report: Report) -> str:
    """The name of a base that is on the engine; pulls or makes one if there is none.

    `packages` and `unused` are the contents of the lists for a base made here.

    Raises: BuildError, with what to do.
    """
    wanted = os.environ.get("PADDOCK_BASE_IMAGE")
    if wanted:
        if inspect(client, wanted) is None and not pull(wanted, report):
            raise BuildError(
                f"PADDOCK_BASE_IMAGE: {wanted} is neither on the engine nor in a registry"
            )
        return wanted
    local = local_name(packages, unused)
    for name in (local, REGISTRY_BASE):
        if inspect(client, name) is not None:
            return name
    if pull(REGISTRY_BASE, report):
        return REGISTRY_BASE
    report("no registry answers: making the base image from Debian packages (about a minute)")
    _make(client, local, packages.decode().split(), unused.decode().split(), report)
    return local


def choose_newer(
    client: docker.APIClient, suite: str, packages: bytes, unused: bytes, report: Report
) -> str | None:
    """The name of a base of that Debian, such as `trixie`; None if there is none to be had.

    An operator's own base is not replaced.
    """
    if os.environ.get("PADDOCK_BASE_IMAGE"):
        return None
    local, registry = newer_names(suite, packages, unused)
    for name in (local, registry):
        if inspect(client, name) is not None:
            return name
    if pull(registry, report):
        return registry
    report(f"no registry answers: making a base of {suite} from Debian packages")
    try:
        _make(client, local, packages.decode().split(), unused.decode().split(), report, suite)
    except BuildError as error:
        report(f"no base of {suite}: {error}")
        return None
    return local


def newer_names(suite: str, packages: bytes, unused: bytes) -> tuple[str, str]:
    """The names of that Debian's base: the one made here, and the registry's."""
    repository, _, tag = local_name(packages, unused).partition(":")
    return f"{repository}:{suite}-{tag}", f"debian:{suite}-slim"


def local_name(packages: bytes, unused: bytes) -> str:
    """The name of the base made here, which depends on its contents."""
    digest = hashlib.sha256(packages + b"\0" + unused).hexdigest()
    return f"{LOCAL_BASE}:{digest[:16]}"


def inspect(client: docker.APIClient, name: str) -> dict[str, Any] | None:
    """The engine's description of that image, or None if it has none."""
    try:
        return dict(client.inspect_image(name))  # type: ignore[no-untyped-call]
    except ImageNotFound:
        return None


def pull(name: str, report: Report) -> bool:
    """Pulls an image if a registry answers, with the engine's own credentials."""
    report(f"pulling {name}")
    repository, _, tag = name.rpartition(":") if ":" in name.rpartition("/")[2] else (name, "", "")
    client = connect(PULL_SILENCE_SECONDS)
    try:
        # The engine stops a pull when its client disconnects.
        for event in client.pull(repository, tag=tag or "latest", stream=True, decode=True):
            if "error" in event:
                report(str(event["error"]))
                return False
            if not event.get("progressDetail"):
                report(" ".join(str(event[k]) for k in ("id", "status") if k in event))
    except (DockerException, RequestException) as error:
        report(_reason(error))
        return False
    finally:
        client.close()
    return True


def _make(
    client: docker.APIClient,
    name: str,
    packages: list[str],
    unused: list[str],
    report: Report,
    suite: str | None = None,
) -> None:
    own = _suite()
    suite = suite or own
    _require_mmdebstrap(report)
    with tempfile.TemporaryDirectory(prefix="paddock-base-") as directory:
        archive = Path(directory) / "base.tar"
        command = mmdebstrap_command(
            archive, packages, unused, suite, _sources(suite, own), _apt_settings()
        )
        run(command, report)
        repository, _, tag = name.partition(":")
        with archive.open("rb") as content:
            answer = client.import_image(src=content, repository=repository, tag=tag)
    if inspect(client, name) is None:
        raise BuildError(f"the engine did not import the base image: {answer.strip()}")


def mmdebstrap_command(
    archive: Path,
    packages: list[str],
    unused: list[str],
    suite: str,
    sources: list[str],
    apt_settings: list[str],
) -> list[str]:
    """The command that makes the base's tar archive.

    Settings taken from this machine's apt (mirrors, proxies) do not end up in the archive.
    """
    return [
        "mmdebstrap",
        "--variant=minbase",
        f"--include={','.join(packages)}",
        *(f"--dpkgopt=path-exclude={pattern}" for pattern in unused),
        *(f"--aptopt={setting}" for setting in apt_settings),
        '--customize-hook=rm -rf "$1"/etc/apt/sources.list "$1"/etc/apt/sources.list.d/* '
        '"$1"/etc/apt/apt.conf.d/99mmdebstrap "$1"/var/cache/debconf/* "$1"/var/log/*',
        suite,
        str(archive),
        *sources,
    ]


def _require_mmdebstrap(report: Report) -> None:
    if shutil.which("mmdebstrap"):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise BuildError(
            f"no base image: make {REGISTRY_BASE} reachable for the engine, or load an image of "
            "Debian 12 and name it in PADDOCK_BASE_IMAGE"
        )
    run(["apt-get", "-q", "update"], report)
    run(["apt-get", "-q", "-y", "install", "--no-install-recommends", "mmdebstrap"], report)


def _suite() -> str:
    found = codename(Path("/etc/os-release").read_text())
    if found is None:
        raise BuildError("/etc/os-release has no VERSION_CODENAME: set PADDOCK_BASE_IMAGE")
    return found


def _sources(suite: str, own: str) -> list[str]:
    """This machine's files; for another suite, the mirrors that have this machine's own."""
    files = source_files()
    if suite == own:
        return [str(path) for path in files]
    mirrors = serving((path.read_text() for path in files), own)
    if not mirrors:
        raise BuildError(f"no mirror of {own} is known here")
    return [f"deb {mirror} {suite} main" for mirror in mirrors]


def _apt_settings() -> list[str]:
    dump = subprocess.run(
        ["apt-config", "dump"], capture_output=True, text=True, check=True, timeout=30
    )
    return [line for line in dump.stdout.splitlines() if _APT_SETTING.fullmatch(line)]


def run(command: list[str], report: Report) -> None:
    """Runs a program to its end and reports its output. Raises: BuildError if it fails."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        # TERM, not KILL: mmdebstrap unmounts what it mounted.
        deadline = threading.Timer(MAKE_SECONDS, process.terminate)
        deadline.start()
        try:
            for line in process.stdout or ():
                report(line)
            process.wait()
        except BaseException:
            process.terminate()
            raise
        finally:
            deadline.cancel()
    if process.returncode:
        raise BuildError(f"{command[0]} ended with exit status {process.returncode}, see above")


def _reason(error: Exception) -> str:
    return str(error.explanation) if isinstance(error, APIError) else str(error)

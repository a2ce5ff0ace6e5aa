"""What the peers need: an environment with their packages, and an image with SWE-ReX's server."""

import hashlib
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from images import base
from images.builder import context_archive, input_hash
from images.progress import step
from images.recipes import ROOT
from images.releases import DEBIAN_12
from images.site import platform_options
from orchestrator.host.engine.base import LABEL_INPUTS

ENVIRONMENT = ROOT / ".venv-bench"
REQUIREMENTS = Path(__file__).with_name("requirements.txt")
IMAGE = "paddock/bench-peers"
_SECONDS = 600
# Its server runs in the sandbox, the other packages only beside the benchmark.
_IN_IMAGE = "swe-rex"
_PATH = "/usr/local/lib/python3.11/dist-packages/"
_DOCKERFILE = f"""
ARG BASE_IMAGE
FROM $BASE_IMAGE
COPY site {_PATH}
COPY swerex-remote /usr/local/bin/
RUN chmod 755 /usr/local/bin/swerex-remote && ln -s python3 /usr/bin/python \\
    && python3 -m compileall -q {_PATH}
ENTRYPOINT []
CMD ["sleep", "infinity"]
"""
_SERVER = b"#!/usr/bin/python3\nfrom swerex.server import main\nmain()\n"


class PeersError(Exception):
    """The peers can't be installed; the message says why."""


def python() -> Path:
    """The interpreter of an environment with the peers' packages, made if necessary.

    Raises: PeersError, for example if PyPI can't be reached.
    """
    interpreter = ENVIRONMENT / "bin" / "python"
    stamp = ENVIRONMENT / "installed"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        step("installing the peers")
        _run(sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT))
        _pip(interpreter, f"--requirement={REQUIREMENTS}")
        stamp.write_text(wanted)
    return interpreter


def image(sandbox_image: str, interpreter: Path) -> str:
    """The name of the sandbox image with SWE-ReX's server in it, built if necessary.

    Raises: PeersError.
    """
    with closing(base.connect(_SECONDS)) as client:
        found = client.inspect_image(sandbox_image)  # type: ignore[no-untyped-call]
        inputs = {"Dockerfile": _DOCKERFILE.encode(), "packages": REQUIREMENTS.read_bytes()}
        digest = input_hash(inputs, str(found["Id"]))
        name = f"{IMAGE}:{digest[:16]}"
        if base.inspect(client, name) is not None:
            return name
        step("building the peers' image")
        files = _site(interpreter, str(found["Architecture"]))
        files |= {"Dockerfile": inputs["Dockerfile"], "swerex-remote": _SERVER}
        events = client.build(
            fileobj=context_archive(files),
            custom_context=True,
            tag=name,
            buildargs={"BASE_IMAGE": sandbox_image},
            labels={LABEL_INPUTS: digest},
            rm=True,
            forcerm=True,
            decode=True,
        )
        for event in events:
            if "error" in event:
                raise PeersError(f"the peers' image can't be built: {event['error']}")
        return name


def _site(interpreter: Path, architecture: str) -> dict[str, bytes]:
    """The server's packages for the image's Python, as files of the build."""
    (requirement,) = (
        line for line in REQUIREMENTS.read_text().splitlines() if line.startswith(_IN_IMAGE)
    )
    with tempfile.TemporaryDirectory(prefix="paddock-bench-") as directory:
        _pip(
            interpreter,
            f"--target={directory}",
            "--no-compile",
            "--only-binary=:all:",
            "--implementation=cp",
            f"--python-version={DEBIAN_12.python}",
            *platform_options(architecture),
            requirement,
        )
        root = Path(directory)
        return {
            f"site/{path.relative_to(root).as_posix()}": path.read_bytes()
            for path in root.rglob("*")
            if path.is_file()
        }


def _pip(interpreter: Path, *arguments: str) -> None:
    options = ["--disable-pip-version-check", "--no-input", "--quiet", "--retries=1"]
    _run(str(interpreter), "-m", "pip", "install", *options, *arguments)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=_SECONDS)
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise PeersError(f"the peers can't be installed: {last}") from error
    except subprocess.TimeoutExpired as error:
        raise PeersError("the peers can't be installed: no answer in time") from error

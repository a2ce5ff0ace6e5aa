"""Builds an image with attack programs, compiled here, and with a secret to steal."""

import io
import os
import secrets
import subprocess
import tarfile
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import docker

from tests.support.limits import PROGRAM_SECONDS

PROGRAMS = Path(__file__).parents[1] / "security" / "programs"
# Tests start these by name; everything else in the image is there to be attacked.
ATTACKS = ("calls", "execs", "hogs", "memory", "races", "reach", "reads", "sockets", "writes")
_STRICT = ("-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function")
# The payload has no C library of its own, so it fits any image.
_FREESTANDING = ("-nostdlib", "-ffreestanding", "-fno-stack-protector")
_PAYLOADS = {
    "payload": ("-static",),
    "payload-dynamic": ("-fPIE", "-pie"),
    "payload.so": ("-DLIBRARY", "-fPIC", "-shared"),
}
_DOCKERFILE = "FROM {base}\nADD root.tar /\n"


class Arsenal(NamedTuple):
    """The image's name, the secret in it, and payloads by name."""

    image: str
    canary: str
    payloads: dict[str, bytes]


def attack_name(program: str) -> str:
    """The name of an attack program in the image."""
    return f"attack-{program}"


def build_arsenal(base: str, directory: Path) -> Arsenal:
    """Compiles the programs in `directory` and builds the image on the image `base`.

    The base's labels stay, so the control plane accepts it as a sandbox image.
    """
    jobs = {name: _compile(directory / name, [f"{name}.c"], ("-static",)) for name in ATTACKS}
    for name, options in _PAYLOADS.items():
        jobs[name] = _compile(directory / name, ["payload.c"], (*_FREESTANDING, *options))
    for name, job in jobs.items():
        assert job.wait(PROGRAM_SECONDS) == 0, f"{name} does not compile: scripts/compiler.sh"
    payloads = {name: (directory / name).read_bytes() for name in _PAYLOADS}
    canary = f"canary-of-the-image-{secrets.token_hex(8)}"
    files = {
        **{f"usr/local/bin/{attack_name(n)}": (directory / n).read_bytes() for n in ATTACKS},
        "usr/local/bin/forbidden": payloads["payload"],
        "usr/local/bin/forbidden-dynamic": payloads["payload-dynamic"],
        "usr/local/lib/forbidden.so": payloads["payload.so"],
    }
    root = _archive(
        {name: (content, 0o755) for name, content in files.items()}
        | {
            "usr/share/canary": (f"{canary}\n".encode(), 0o644),
            "usr/share/open/file": (b"unchanged\n", 0o666),
        },
        {"usr/share/open": 0o777},
    )
    return Arsenal(build_image("attack", _DOCKERFILE.format(base=base), root), canary, payloads)


def _compile(target: Path, sources: list[str], options: tuple[str, ...]) -> subprocess.Popen[bytes]:
    linked = () if "-nostdlib" in options else ("-pthread",)
    paths = [PROGRAMS / source for source in sources]
    return subprocess.Popen(["gcc", *_STRICT, *linked, *options, "-o", target, *paths])


def build_image(kind: str, dockerfile: str, root: bytes = b"") -> str:
    """Builds an image in which `dockerfile` may add `root.tar`; returns its name."""
    name = f"paddock/sandbox:{kind}-{secrets.token_hex(4)}"
    files = {"Dockerfile": (dockerfile.encode(), 0o644), "root.tar": (root, 0o644)}
    context = _archive(files, {})
    with closing(docker.APIClient(version="auto", timeout=PROGRAM_SECONDS)) as client:
        events = client.build(
            fileobj=io.BytesIO(context),
            custom_context=True,
            tag=name,
            rm=True,
            forcerm=True,
            decode=True,
        )
        said = list(events)
        assert not any("error" in event for event in said), said
    return name


def remove_image(name: str) -> None:
    """Removes an image that was built here."""
    with closing(docker.APIClient(version="auto")) as client:
        client.remove_image(name)


def _archive(files: dict[str, tuple[bytes, int]], directories: dict[str, int]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, mode in directories.items():
            member = tarfile.TarInfo(name)
            member.type, member.mode = tarfile.DIRTYPE, mode
            archive.addfile(member)
        for name, (content, mode) in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), mode
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def held_in(directory: Path, secret: str) -> list[str]:
    """The files below `directory` whose content or name has the secret."""
    found = []
    for root, directories, files in os.walk(directory):
        names = [os.path.join(root, name) for name in (*directories, *files)]
        found += [name for name in names if secret in name or _holds(name, secret.encode())]
    return found


def _holds(path: str, secret: bytes) -> bool:
    if not os.path.isfile(path) or os.path.islink(path):
        return False
    with open(path, "rb") as file:
        return secret in file.read()

"""Images that have nothing of Paddock's, made here without a registry."""

import io
import re
import secrets
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import docker
import pytest

from tests.support.limits import PROGRAM_SECONDS

APPLETS = (
    "sh",
    "cat",
    "echo",
    "env",
    "find",
    "grep",
    "head",
    "id",
    "ls",
    "mkdir",
    "sleep",
    "touch",
)

# Of /bin in an unmerged Debian, besides those above.
OLD_PROGRAMS = ("bash", "cp", "date", "dash", "mv", "pwd", "rm", "stat", "uname")
_OLD_LIBRARIES = (
    r"(ld|lib(?:c|m|dl|rt|pthread|resolv|util|nsl|anl|nss_[a-z]+))(?:-linux[a-z0-9_-]*)?[.]so[.]\d+"
)
# The members of an archive that take the place of one.
Place = Callable[[tarfile.TarInfo], Iterable[tarfile.TarInfo]]


class Root:
    """The files of an image's root, as a tar archive."""

    def __init__(self) -> None:
        self._buffer = io.BytesIO()
        self._archive = tarfile.open(fileobj=self._buffer, mode="w")  # noqa: SIM115 - see `data`

    def file(self, path: str, content: bytes, mode: int = 0o755) -> None:
        """Adds a file."""
        member = tarfile.TarInfo(path)
        member.size, member.mode = len(content), mode
        self._archive.addfile(member, io.BytesIO(content))

    def copy(self, path: str, source: Path) -> None:
        """Adds a copy of this host's file."""
        self.file(path, source.resolve().read_bytes())

    def link(self, path: str, target: str) -> None:
        """Adds a symbolic link."""
        member = tarfile.TarInfo(path)
        member.type, member.linkname = tarfile.SYMTYPE, target
        self._archive.addfile(member)

    def directory(self, path: str, mode: int = 0o755) -> None:
        """Adds a directory."""
        member = tarfile.TarInfo(path)
        member.type, member.mode = tarfile.DIRTYPE, mode
        self._archive.addfile(member)

    def data(self) -> bytes:
        """The whole archive."""
        self._archive.close()
        return self._buffer.getvalue()


def busybox() -> Root:
    """A static busybox and links to it, and nothing else: no directory but /bin."""
    root = Root()
    found = shutil.which("busybox")
    if found is None:
        pytest.skip("this host has no busybox: scripts/foreign.sh")
    root.copy("bin/busybox", Path(found))
    for name in APPLETS:
        root.link(f"bin/{name}", "busybox")
    return root


_HELLO = """\
int puts(const char *);
void exit(int);
__attribute__((force_align_arg_pointer)) void begin(void) { puts("from musl"); exit(0); }
"""


def musl(directory: Path) -> Root:
    """A busybox, and a program that needs the loader of musl, the image's only C library."""
    loader = next(Path("/lib").glob("ld-musl-*.so.1"), None)
    if loader is None:
        pytest.skip("this host has no musl: scripts/foreign.sh")
    source, target = directory / "hello.c", directory / "hello"
    source.write_text(_HELLO)
    subprocess.run(
        [
            *("gcc", "-nostdlib", "-nostartfiles", "-fPIE", "-pie", "-Wl,-e,begin"),
            *("-o", target, source, f"-L{loader.resolve().parent}", "-l:libc.so"),
            f"-Wl,--dynamic-linker={loader}",
        ],
        check=True,
        timeout=PROGRAM_SECONDS,
    )
    root = busybox()
    root.copy(str(loader).lstrip("/"), loader)
    root.copy("usr/bin/hello", target)
    return root


def debian_without_python(image: str, place: Place | None = None) -> bytes:
    """The root of that image without Python and Paddock's files, as a tar archive.

    `place` says where each file is; None: where it was.
    """
    with closing(docker.APIClient(version="auto", timeout=PROGRAM_SECONDS)) as client:
        made = client.create_container(image, ["/none"])
        try:
            whole = b"".join(client.export(made["Id"]))
        finally:
            client.remove_container(made["Id"], force=True)
    kept = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(whole)) as source,
        tarfile.open(fileobj=kept, mode="w") as target,
    ):
        for member in source:
            if "python" not in member.name and not member.name.startswith(("opt", "dev/")):
                content = source.extractfile(member) if member.isreg() else None
                for each in [member] if place is None else place(member):
                    target.addfile(each, content if each is member else None)
    return kept.getvalue()


def unmerged(member: tarfile.TarInfo) -> Iterable[tarfile.TarInfo]:
    """As before /usr was merged: libraries, shells and coreutils are in /lib and /bin."""
    name = member.name
    if name in ("bin", "sbin", "lib", "lib64"):
        return ()  # links into /usr
    if name == "etc/ld.so.cache":
        return ()  # it names the other places
    library = re.fullmatch(r"usr/(lib(?:64)?/(?:[^/]+-linux-gnu/)?[^/]+[.]so(?:[.][0-9.]+)?)", name)
    program = re.fullmatch(r"usr/(bin/[^/]+)", name)
    if library is not None:
        member.name = library[1]
    elif program is not None and program[1].rpartition("/")[2] in (*APPLETS, *OLD_PROGRAMS):
        member.name = program[1]
    return (member,)


def glibc_2_31(member: tarfile.TarInfo) -> Iterable[tarfile.TarInfo]:
    """As glibc 2.31 has them: `libc.so.6` and the like are links to `libc-2.31.so`."""
    if member.name == "etc/ld.so.cache":
        return ()
    folder, _, name = member.name.rpartition("/")
    found = re.fullmatch(_OLD_LIBRARIES, name)
    if found is None or not member.isreg() or not folder.startswith("usr/lib/"):
        return (member,)
    link = tarfile.TarInfo(member.name)
    link.type, link.linkname = tarfile.SYMTYPE, f"{found[1]}-2.31.so"
    member.name = f"{folder}/{link.linkname}"
    return member, link


@contextmanager
def imported(root: bytes, changes: Sequence[str] = ()) -> Iterator[str]:
    """An image with that root and those instructions, by a name of its own."""
    name = f"foreign-{secrets.token_hex(4)}"
    with closing(docker.APIClient(version="auto", timeout=PROGRAM_SECONDS)) as client:
        client.import_image_from_data(root, repository=name, changes=list(changes))
        try:
            yield f"{name}:latest"
        finally:
            client.remove_image(f"{name}:latest", force=True)

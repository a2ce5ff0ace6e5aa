"""The Debian releases on which the control plane's image can be: which Python each has."""

import io
import re
import tarfile
from typing import NamedTuple

import docker

# Present in the image of every Debian and what derives from it.
_DESCRIPTION = "/usr/lib/os-release"


class Release(NamedTuple):
    """The version of a release's Python, and the minor version of its C library, glibc 2."""

    python: str
    glibc_minor: int


DEBIAN_12 = Release("3.11", 36)
DEBIAN_13 = Release("3.13", 41)
_BY_CODENAME = {"bookworm": DEBIAN_12, "trixie": DEBIAN_13}


def of_image(client: docker.APIClient, name: str) -> Release:
    """The release that an image on the engine has; what is not known counts as Debian 12.

    Reads a file of a container that never starts. Raises: DockerException if there is no such file.
    """
    made = client.create_container(name, command=["true"])
    try:
        pieces, _ = client.get_archive(made["Id"], _DESCRIPTION)
        with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
            (member,) = archive.getmembers()
            content = archive.extractfile(member)
            text = "" if content is None else content.read().decode(errors="replace")
    finally:
        client.remove_container(made["Id"], v=True, force=True)
    return _BY_CODENAME.get(codename(text) or "", DEBIAN_12)


def codename(description: str) -> str | None:
    """The code name in the text of `os-release`, such as `trixie`."""
    found = re.search(r'^VERSION_CODENAME="?([\w-]+)', description, re.MULTILINE)
    return None if found is None else found[1]

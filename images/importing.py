"""Loads images from a file into the engine, if every byte of it is what it must be."""

import hashlib
import re
import zlib
from collections.abc import Iterator
from contextlib import closing
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

import docker
from docker.errors import DockerException
from requests.exceptions import RequestException

from images import base
from images.errors import BuildError
from images.image_file import Packed, Reader, opened

_SILENCE_SECONDS = 600
_MIB = 1 << 20
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


class Imported(NamedTuple):
    """An image that was loaded: its name, its id, and the other id that the name had before."""

    name: str
    id: str
    replaced: str | None


def load(file: Path, expected: str | None, report: base.Report) -> list[Imported]:
    """Verifies the whole file, then loads its images. `expected` is the file's SHA-256 in hex.

    Raises: BuildError in one line; the engine has what it had before then.
    """
    if expected is not None and not _SHA256.fullmatch(expected):
        raise BuildError("--sha256: 64 hexadecimal digits, as `paddock images export` printed them")
    try:
        with file.open("rb") as source:
            images = _verify(source, expected, report)
            with closing(base.connect(_SILENCE_SECONDS)) as client:
                before = {each.name: _id(client, each.name) for each in images}
                # Verified again while it is sent, because the file may have been changed meanwhile.
                archive = Reader.opened(opened(source)).archive()
                sent = _told(archive, report, "loaded")
                for answer in client.load_image(sent):  # type: ignore[no-untyped-call]
                    if "error" in answer:
                        raise BuildError(f"the engine refused it: {answer['error']}")
                return [_imported(client, each, before[each.name]) for each in images]
    except BuildError as error:
        raise BuildError(f"{file}: {error}") from None
    except (OSError, EOFError, zlib.error) as error:
        if isinstance(error, RequestException):
            raise BuildError(f"the engine refused or did not answer: {error}") from error
        reason = getattr(error, "strerror", None) or f"it is damaged: {error}"
        raise BuildError(f"{file}: {reason}") from None
    except DockerException as error:
        raise BuildError(f"the engine refused or did not answer: {error}") from error


def _verify(source: BufferedReader, expected: str | None, report: base.Report) -> list[Packed]:
    """The images of the file, after all of it was read."""
    if expected is not None:
        found = hashlib.file_digest(source, "sha256").hexdigest()
        if found != expected.lower():
            raise BuildError(f"its SHA-256 is {found}: this is not the file that was exported")
    reader = Reader.opened(opened(source))
    for _ in _told(reader.archive(), report, "verified"):
        pass
    return reader.images


def _told(pieces: Iterator[bytes], report: base.Report, what: str) -> Iterator[bytes]:
    total = told = 0
    for piece in pieces:
        total += len(piece)
        if total // _MIB >= told + 16:
            told = total // _MIB
            report(f"{told} MiB {what}")
        yield piece


def _imported(client: docker.APIClient, image: Packed, before: str | None) -> Imported:
    found = base.inspect(client, image.name)
    layers = [] if found is None else found["RootFS"].get("Layers", [])
    if found is None or layers != [f"sha256:{part.sha256}" for part in image.layers]:
        raise BuildError(f"the engine reported no error, but {image.name} is not what was loaded")
    now = str(found["Id"])
    return Imported(image.name, now, None if before in (None, now) else before)


def _id(client: docker.APIClient, name: str) -> str | None:
    found = base.inspect(client, name)
    return None if found is None else str(found["Id"])

"""Writes images of the engine to a file, for hosts that reach no registry and no mirror."""

import gzip
import hashlib
import json
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import IO, NamedTuple, cast

import docker
from docker.errors import DockerException
from requests.exceptions import RequestException

from images import base, image_file
from images.errors import BuildError
from images.image_file import PIECE, Packed, Part

_SILENCE_SECONDS = 600
_COMPRESSED = ".gz"
# Faster levels compress layers of programs hardly less.
_LEVEL = 6


class Exported(NamedTuple):
    """A file with images: its bytes and its SHA-256 in hex, and what it has."""

    bytes: int
    sha256: str
    images: list[Packed]


class _Source(NamedTuple):
    """Where the parts of one image are: the engine's archive, and the member of each part."""

    image: Packed
    members: dict[Part, str]
    archive: tarfile.TarFile


def export(file: Path, names: Sequence[str], report: base.Report) -> Exported:
    """Writes the images to a new file, which appears when it is complete.

    It is compressed if its name ends with `.gz`. Meanwhile the images are once in the file's
    directory, uncompressed.

    Raises: BuildError, which says what is missing; nothing is left then.
    """
    if file.exists():
        raise BuildError(f"{file} exists: name another file, or remove it")
    if len(names) > image_file.MOST_IMAGES:
        raise BuildError(f"a file has at most {image_file.MOST_IMAGES} images")
    try:
        with ExitStack() as stack:
            place = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix=".images-", dir=file.parent))
            )
            client = stack.enter_context(closing(base.connect(_SILENCE_SECONDS)))
            sources = []
            for number, name in enumerate(dict.fromkeys(names)):
                report(f"the engine writes {name}")
                _save(client, name, place / str(number))
                archive = stack.enter_context(tarfile.open(place / str(number)))
                sources.append(_source(name, archive))
            draft = place / "draft"
            _write(draft, sources, report, compressed=file.name.endswith(_COMPRESSED))
            draft.chmod(0o644)
            made = Exported(draft.stat().st_size, _sha256(draft), [each.image for each in sources])
            draft.rename(file)
            return made
    except (DockerException, RequestException) as error:
        raise BuildError(f"the engine refused or did not answer: {error}") from error
    except (OSError, tarfile.TarError, zlib.error) as error:
        raise BuildError(f"{file}: {error}") from error


def _save(client: docker.APIClient, name: str, target: Path) -> None:
    if base.inspect(client, name) is None:
        raise BuildError(f"the engine has no image {name}: `paddock images list` shows what it has")
    with target.open("wb") as written:
        for piece in client.get_image(name):
            written.write(piece)


def _source(name: str, archive: tarfile.TarFile) -> _Source:
    """What the engine wrote for one image."""
    try:
        (told,) = json.loads(_content(archive, image_file.MANIFEST))
        text = _content(archive, told["Config"])
        digests = json.loads(text)["rootfs"]["diff_ids"]
        members = dict(zip(digests, told["Layers"], strict=True))
    except (KeyError, ValueError, TypeError) as error:
        raise BuildError(f"the engine's archive of {name} is not understood: {error}") from error
    config = Part(hashlib.sha256(text).hexdigest(), len(text))
    found = {}
    for digest, member in members.items():
        found[Part(digest.removeprefix("sha256:"), _size(archive, member))] = member
    by_digest = {part.sha256: part for part in found}
    layers = tuple(by_digest[each.removeprefix("sha256:")] for each in digests)
    return _Source(Packed(name, config, layers), {config: told["Config"], **found}, archive)


def _write(draft: Path, sources: list[_Source], report: base.Report, *, compressed: bool) -> None:
    images = [each.image for each in sources]
    where = {part: (each.archive, name) for each in sources for part, name in each.members.items()}
    with ExitStack() as stack:
        file: IO[bytes] = stack.enter_context(draft.open("xb"))
        if compressed:
            # Neither a name nor a time, so that the same images are the same bytes.
            packed = stack.enter_context(gzip.GzipFile("", "wb", _LEVEL, file, mtime=0))
            file = cast(IO[bytes], packed)
        _member(file, image_file.HEAD, [text := image_file.head_text(images)], len(text))
        for part, name in image_file.parts(images).items():
            report(f"{name[:12]}, {part.size >> 20} MiB")
            digest = hashlib.sha256()
            _member(file, name, _counted(_layer(*where[part]), digest), part.size)
            if digest.hexdigest() != part.sha256:
                raise BuildError(f"the engine's layer {part.sha256[:12]} has another SHA-256")
        _member(file, image_file.MANIFEST, [text := image_file.manifest_text(images)], len(text))
        file.write(image_file.END)


def _member(
    file: IO[bytes], name: str, pieces: Sequence[bytes] | Iterator[bytes], size: int
) -> None:
    file.write(image_file.block(name, size))
    for piece in pieces:
        file.write(piece)
    file.write(image_file.padding(size))


def _counted(pieces: Iterator[bytes], digest: "hashlib._Hash") -> Iterator[bytes]:
    for piece in pieces:
        digest.update(piece)
        yield piece


def _layer(archive: tarfile.TarFile, member: str) -> Iterator[bytes]:
    """Its bytes without the compression that some engines keep."""
    with _opened(archive, member) as found:
        read = image_file.opened(found)
        while piece := read.read(PIECE):
            yield piece


def _size(archive: tarfile.TarFile, member: str) -> int:
    return sum(map(len, _layer(archive, member)))


def _content(archive: tarfile.TarFile, member: str) -> bytes:
    with _opened(archive, member) as found:
        return found.read(image_file.MOST_TEXT)


def _opened(archive: tarfile.TarFile, member: str) -> IO[bytes]:
    found = archive.extractfile(member)  # follows the links of an engine's archive
    if found is None:
        raise BuildError(f"the engine's archive has no file {member}")
    return found


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()

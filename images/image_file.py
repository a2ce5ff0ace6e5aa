"""The format of images as a file, and a reader that believes nothing of it.

A tar archive, compressed if its name says so, that the engine's own `load` reads, too. First comes
`images.json`, which tells what follows; then each image's configuration and layers, each once and
under its own SHA-256; last `manifest.json`, for the engine. The same images make the same bytes.
"""

import gzip
import hashlib
import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from typing import IO, Any, NamedTuple, Self, cast

from images.errors import BuildError
from orchestrator.settings.values import IMAGE_PATTERN

HEAD, MANIFEST = "images.json", "manifest.json"
FORMAT = 1
PIECE = 1 << 20
# Of the head, and of an image's configuration. Real ones have some KiB.
MOST_TEXT = 1 << 20
MOST_IMAGES, MOST_LAYERS = 64, 128
# Of all that a file unpacks to: more than any set of images has, less than any disk.
MOST_BYTES = 256 << 30
_DIGEST = re.compile(r"[0-9a-f]{64}")
_BLOCK = tarfile.BLOCKSIZE


class Part(NamedTuple):
    """A configuration or a layer: its SHA-256 in hex, and its bytes."""

    sha256: str
    size: int


class Packed(NamedTuple):
    """One image of a file: its name, its configuration, and its layers from the lowest on."""

    name: str
    config: Part
    layers: tuple[Part, ...]

    @property
    def size(self) -> int:
        """Bytes of the layers, of which other images of the file may have some, too."""
        return sum(part.size for part in self.layers)


def head_text(images: list[Packed]) -> bytes:
    """The first member; it has a digest of itself."""
    found = [_told(each) for each in sorted(images)]
    return _json({"format": FORMAT, "images": found, "sha256": _digest(found)})


def manifest_text(images: list[Packed]) -> bytes:
    """The last member, in the engine's words."""
    return _json(
        [
            {
                "Config": config_name(each.config),
                "RepoTags": [each.name],
                "Layers": [layer_name(part) for part in each.layers],
            }
            for each in sorted(images)
        ]
    )


def read_head(text: bytes) -> list[Packed]:
    """Its images. Raises: BuildError."""
    try:
        found = json.loads(text)
        told = found["images"]
        if found["format"] != FORMAT:
            raise BuildError(f"its format is {found['format']!r}: a newer Paddock wrote it")
        if found["sha256"] != _digest(told) or len(told) > MOST_IMAGES:
            raise BuildError("its list of images is damaged")
        images = [_image(each) for each in told]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BuildError("its list of images is damaged") from None
    if sum(part.size for part in parts(images)) > MOST_BYTES:
        raise BuildError("it would unpack to more than an engine should load")
    return images


def parts(images: list[Packed]) -> dict[Part, str]:
    """The name of each part in the file, in the order of the file."""
    found = {}
    for image in sorted(images):
        found[image.config] = config_name(image.config)
        found |= {part: layer_name(part) for part in image.layers}
    return found


def config_name(part: Part) -> str:
    """The name of a configuration in the archive."""
    return f"{part.sha256}.json"


def layer_name(part: Part) -> str:
    """The name of a layer in the archive."""
    return f"{part.sha256}.tar"


def block(name: str, size: int) -> bytes:
    """The archive's header of one member: a file of root's, without a time."""
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.GNU_FORMAT)


def padding(size: int) -> bytes:
    """What follows a member's bytes."""
    return bytes(-size % _BLOCK)


END = bytes(2 * _BLOCK)


def opened(file: IO[bytes]) -> IO[bytes]:
    """The archive in a file, from its beginning, whether it is compressed or not."""
    file.seek(0)
    compressed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return cast(IO[bytes], gzip.GzipFile(fileobj=file)) if compressed else file


class Reader:
    """Reads a file once from its beginning, and verifies each byte before it passes it on.

    The memory that it needs does not depend on the file. Only the members that the head tells of
    may follow it, in its order, so nothing else of the file reaches anybody.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.images: list[Packed] = []

    @classmethod
    def opened(cls, file: IO[bytes]) -> Self:
        """A reader that has read the head. Raises: BuildError; OSError and zlib.error, too."""
        reader = cls(file)
        size = reader._header(HEAD, None)
        reader.images = read_head(reader._text(size))
        return reader

    def archive(self) -> Iterator[bytes]:
        """The archive for the engine, in pieces of at most 1 MiB.

        Raises: BuildError at the first part that is not what the head tells.
        """
        for part, name in parts(self.images).items():
            self._header(name, part.size)
            yield block(name, part.size)
            digest = hashlib.sha256()
            for piece in self._pieces(part.size):
                digest.update(piece)
                yield piece
            if digest.hexdigest() != part.sha256:
                raise BuildError(f"{name} is damaged: its content has another SHA-256")
            yield padding(part.size)
        manifest = manifest_text(self.images)
        if self._text(self._header(MANIFEST, len(manifest))) != manifest:
            raise BuildError(f"{MANIFEST} is not what the list of images tells")
        if self._exactly(len(END)) != END:
            raise BuildError("its end is damaged")
        if self._file.read(1):
            raise BuildError("something follows its end")
        yield block(MANIFEST, len(manifest)) + manifest + padding(len(manifest)) + END

    def _header(self, name: str, size: int | None) -> int:
        """The size of the member that comes next, which must have this name and size."""
        read = self._exactly(_BLOCK)
        if size is None:
            try:
                size = tarfile.TarInfo.frombuf(read, "utf-8", "strict").size
            except (tarfile.TarError, ValueError):
                raise BuildError("it has no images of Paddock's") from None
            if not 0 <= size <= MOST_TEXT or read != block(name, size):
                raise BuildError("it has no images of Paddock's")
        if read != block(name, size):
            raise BuildError(f"the header of {name} is damaged, or that part is missing")
        return size

    def _text(self, size: int) -> bytes:
        return b"".join(self._pieces(size))

    def _pieces(self, size: int) -> Iterator[bytes]:
        """A member's bytes, and its padding read."""
        left = size
        while left:
            piece = self._exactly(min(left, PIECE))
            left -= len(piece)
            yield piece
        if any(self._exactly(len(padding(size)))):
            raise BuildError("bytes between its parts are damaged")

    def _exactly(self, size: int) -> bytes:
        found = self._file.read(size)
        if len(found) != size:
            raise BuildError("it breaks off")
        return found


def _told(image: Packed) -> dict[str, Any]:
    layers = [part._asdict() for part in image.layers]
    return {"name": image.name, "config": image.config._asdict(), "layers": layers}


def _image(told: Mapping[str, Any]) -> Packed:
    name, layers = told["name"], told["layers"]
    if re.fullmatch(IMAGE_PATTERN, name) is None or len(layers) > MOST_LAYERS:
        raise ValueError(name)
    config = _part(told["config"])
    if config.size > MOST_TEXT:
        raise ValueError(name)
    return Packed(name, config, tuple(map(_part, layers)))


def _part(told: Mapping[str, Any]) -> Part:
    sha256, size = told["sha256"], told["size"]
    if not _DIGEST.fullmatch(sha256) or type(size) is not int or not 0 <= size <= MOST_BYTES:
        raise ValueError(sha256)
    return Part(sha256, size)


def _digest(value: object) -> str:
    return hashlib.sha256(_json(value)).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n"

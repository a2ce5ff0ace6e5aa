"""Images as a file: what is written is read, and nothing else is."""

import gzip
import hashlib
import io
import json
import tarfile
import zlib
from pathlib import Path

import pytest

from images import image_file, importing
from images.errors import BuildError
from images.image_file import Packed, Part, Reader, opened

CONTENTS = [b'{"rootfs": {}}', b"x" * 700, b"y" * (image_file.PIECE + 5), b""]


def part(content: bytes) -> Part:
    return Part(hashlib.sha256(content).hexdigest(), len(content))


LOW, HIGH = part(CONTENTS[1]), part(CONTENTS[2])
IMAGES = [
    Packed("paddock/sandbox:latest", part(CONTENTS[0]), (LOW,)),
    Packed("paddock/dev:latest", part(CONTENTS[0]), (LOW, HIGH, part(b""))),
]
BY_DIGEST = {part(each): each for each in CONTENTS}


def written(images: list[Packed] = IMAGES) -> bytes:
    head, manifest = image_file.head_text(images), image_file.manifest_text(images)
    members = [(image_file.HEAD, head)]
    members += [(name, BY_DIGEST[each]) for each, name in image_file.parts(images).items()]
    members += [(image_file.MANIFEST, manifest)]
    return (
        b"".join(
            image_file.block(name, len(content)) + content + image_file.padding(len(content))
            for name, content in members
        )
        + image_file.END
    )


WHOLE = written()


def read(content: bytes) -> bytes:
    return b"".join(Reader.opened(opened(io.BytesIO(content))).archive())


def test_the_engine_gets_a_plain_archive_with_every_part_once() -> None:
    for content in (WHOLE, gzip.compress(WHOLE)):
        with tarfile.open(fileobj=io.BytesIO(read(content))) as archive:
            names = archive.getnames()
            manifest = json.load(archive.extractfile("manifest.json") or io.BytesIO())
            found = {name: archive.extractfile(name) for name in names}
            assert all(
                hashlib.sha256(file.read()).hexdigest() == name[:64]
                for name, file in found.items()
                if file is not None and name != "manifest.json"
            )
    assert len(names) == len(set(names)) == 5
    assert [each["RepoTags"] for each in manifest] == [
        ["paddock/dev:latest"],
        ["paddock/sandbox:latest"],
    ]
    assert manifest[0]["Layers"] == [f"{each.sha256}.tar" for each in IMAGES[1].layers]


def test_the_order_of_the_names_does_not_matter() -> None:
    assert written(IMAGES[::-1]) == WHOLE


def test_no_byte_may_differ() -> None:
    small = written(IMAGES[:1])
    assert read(small)
    for place in range(len(small)):
        damaged = bytearray(small)
        damaged[place] ^= 1
        with pytest.raises(BuildError):
            read(bytes(damaged))


@pytest.mark.parametrize("length", [0, 1, 511, 512, 5000, len(WHOLE) - 1])
def test_no_end_may_be_missing(length: int) -> None:
    with pytest.raises(BuildError):
        read(WHOLE[:length])


def head(**changed: object) -> bytes:
    told = json.loads(image_file.head_text(IMAGES)) | changed
    told["sha256"] = image_file._digest(told["images"])
    text = image_file._json(told)
    return image_file.block("images.json", len(text)) + text + image_file.padding(len(text))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (WHOLE + b"\0", "something follows"),
        (head(format=2), "newer Paddock"),
        (head(images=[{"name": "a b"}]), "damaged"),
        (head(images=[[]] * 65), "damaged"),
        (head(images=[{"name": "a", "config": {"sha256": "x", "size": 1}}]), "damaged"),
        (
            head(
                images=[
                    {
                        "name": "a",
                        "config": part(b"")._asdict(),
                        "layers": [{"sha256": f"{n:064}", "size": 1 << 38} for n in range(3)],
                    }
                ]
            ),
            "unpack to more",
        ),
        (image_file.block("images.json", image_file.MOST_TEXT + 1), "no images"),
        (image_file.block("other", 1) + b"1", "no images"),
        (b"\xff" * 4096, "no images"),
        (head(images=[])[:512] + b"[" * 512, "damaged"),
    ],
)  # fmt: skip
def test_a_bad_file_has_a_reason(content: bytes, said: str) -> None:
    with pytest.raises(BuildError, match=said) as refused:
        read(content)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "content", [gzip.compress(WHOLE)[:-9], gzip.compress(WHOLE)[:900], b"\x1f\x8b" + bytes(99)]
)
def test_a_damaged_compression_has_a_reason(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "images.tar.gz"
    file.write_bytes(content)
    with pytest.raises(BuildError, match="damaged") as refused:
        importing.load(file, None, print)
    assert str(refused.value).startswith(f"{file}: ")
    with pytest.raises((EOFError, OSError, zlib.error, BuildError)):
        read(content)


def test_only_the_file_with_that_digest_is_read(tmp_path: Path) -> None:
    file = tmp_path / "images.tar"
    file.write_bytes(WHOLE)
    with pytest.raises(BuildError, match="not the file that was exported"):
        importing.load(file, "0" * 64, print)
    with pytest.raises(BuildError, match="--sha256: 64 hexadecimal digits"):
        importing.load(file, "abc", print)
    with pytest.raises(BuildError, match="No such file"):
        importing.load(tmp_path / "missing", None, print)


def test_nothing_is_sent_of_a_bad_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(_seconds: int) -> None:
        pytest.fail("the engine was asked")

    monkeypatch.setattr("images.base.connect", connect)
    file = tmp_path / "images.tar"
    file.write_bytes(WHOLE[:-1])
    with pytest.raises(BuildError, match="breaks off"):
        importing.load(file, None, print)

r"""Names of files as text: each name has one, and no other text is taken for it."""

import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.ground.errors import ValidationError
from orchestrator.work.files.file_requests import check_path
from paddock.client.file_names import listed_name, local_name
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.files import names, patches
from sandbox_agent.files import listing
from sandbox_agent.files.archives import tar_headers
from sandbox_agent.files.archives.names import entry_path
from sandbox_agent.files.archives.tar_headers import Header
from sandbox_agent.files.places import Places
from sandbox_agent.files.reading import Reader
from sandbox_agent.files.writing import Writer

# Any bytes, and often those of escapes.
_BYTES = st.lists(
    st.one_of(
        st.integers(1, 255).filter(lambda byte: byte != 0x2F).map(lambda byte: bytes([byte])),
        st.sampled_from([b"\\", b"\\x", b"x5c", b"\\xff", b"\\x5c", b"ff", b"\xff", b"\xc3\xa9"]),
    ),
    min_size=1,
    max_size=8,
).map(b"".join)
_NAMES = _BYTES.filter(lambda name: name not in (b".", b"..")).map(os.fsdecode)
_TEXTS = st.lists(
    st.sampled_from(["\\", "x", "5", "c", "f", "8", "\\xff", "\\x5c", "\\xc3\\xa9", "é", "a"]),
    max_size=8,
).map("".join)


@given(_NAMES)
@example("\\xff")
@example("\\x5c")
@example("\udcff")
@example("\\\udcff")
@example("\\x5\udcff")
def test_each_name_has_a_text(name: str) -> None:
    text = names.shown(name)
    assert text.encode()  # it is Unicode
    assert "/" not in text
    assert "\0" not in text
    assert names.real(text) == name
    assert names.is_shown(text)
    assert names.has_escape(text) == (text != name)


@given(_NAMES, _TEXTS)
def test_the_client_has_the_same_names(name: str, text: str) -> None:
    assert listed_name(name) == names.shown(name)
    assert local_name(listed_name(name)) == name
    assert local_name(text) == names.real(text)


@given(_NAMES, _NAMES)
def test_no_two_names_have_one_text(one: str, other: str) -> None:
    assert (names.shown(one) == names.shown(other)) == (one == other)


@given(_TEXTS)
def test_a_text_that_is_taken_is_the_one_in_lists(text: str) -> None:
    if names.is_shown(text):
        assert names.shown(os.fsdecode(os.fsencode(names.real(text)))) == text


@given(st.text())
def test_text_without_escapes_is_itself(text: str) -> None:
    plain = text.encode("utf-8", "replace").decode().replace("\\x", "")
    assert names.shown(plain) == names.real(plain) == plain


@pytest.mark.parametrize("path", [r"\xc3\xa9", r"a/\x5c", r"\x5cxzz", r"é\xe2\x82\xac"])
def test_another_spelling_is_refused(path: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="has an escape") as refused:
        check_path(path, "source")
    assert refused.value.fields["field"] == "source"
    with pytest.raises(AgentError, match="has an escape"):
        Places(str(tmp_path), anywhere=False).find(path, writes=True)


def test_the_length_of_a_path_is_that_of_its_bytes() -> None:
    check_path(r"\xff" * 4096)
    with pytest.raises(ValidationError, match="longer than 4096 bytes"):
        check_path(r"\xff" * 4097)


@given(_NAMES)
def test_a_listed_name_can_be_used(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    directory = tmp_path_factory.mktemp("names")
    places = Places(str(directory), anywhere=False)
    writer = Writer(*places.find(names.shown(name), writes=True))
    writer.push(b"content")
    writer.commit()
    assert os.listdir(directory) == [name]
    ((entry,), cut) = listing.list_entries(*places.find(".", writes=False), 1, 10)
    assert (entry.path, cut) == (names.shown(name), False)
    found = places.find(entry.path, writes=False)
    assert Reader(*found).pull(100) == b"content"
    assert listing.stat_entry(*found).path == entry.path


def test_a_link_to_such_a_name_is_listed(tmp_path: Path) -> None:
    os.symlink("\udcff", tmp_path / "link")
    place, _ = Places(str(tmp_path), anywhere=False).find(".", writes=False)
    ((entry,), _) = listing.list_entries(place, ".", 1, 10)
    assert entry.target == r"\xff"


@given(_NAMES)
def test_a_tar_archive_has_the_bytes(name: str) -> None:
    """Other programs read them, too."""
    raw = os.fsencode(name)
    data = tar_headers.write(Header(tar_headers.FILE, raw, b"", 0, 0o644)) + tar_headers.END * 2
    with tarfile.open(fileobj=io.BytesIO(data), errors="surrogateescape") as archive:
        (found,) = archive.getnames()
    assert os.fsencode(found) == raw
    assert entry_path(raw) == name


def test_names_in_patches() -> None:
    """As in lists, or quoted as git does."""
    quoted = '--- "a/\\377\\\\xff"\n+++ "b/\\377\\\\xff"\n@@ -1 +1 @@\n-a\n+b\n'
    (found,) = patches.parse(quoted)
    assert found.new == r"\xff\x5cxff"
    (found,) = patches.parse("--- a/\\xff\n+++ b/\\xff\n@@ -1 +1 @@\n-a\n+b\n")
    assert found.new == r"\xff"

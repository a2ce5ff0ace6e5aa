"""The pure parts of what E2B's SDKs reach inside a sandbox."""

import asyncio
import base64
import gzip
import hashlib
import struct
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.compat.e2b.inside.changes import Changes
from api.compat.e2b.inside.codes import (
    DeadlineError,
    ExistsError,
    GoneError,
    code_of,
    failure,
)
from api.compat.e2b.inside.commands import ending, printed_data
from api.compat.e2b.inside.entries import entry_info, in_order, time_text
from api.compat.e2b.inside.envelope import COMPRESSED, END, Decoder, Envelope, encode
from api.compat.e2b.inside.environments import setting, unsetting
from api.compat.e2b.inside.inflate import deflated, inflated
from api.compat.e2b.inside.interpreter import result
from api.compat.e2b.inside.messages import Input, SendInput, SendSignal, Start, Watch
from api.compat.e2b.inside.numbers import number_of
from api.compat.e2b.inside.paths import absolute, inner, target_of
from api.compat.e2b.inside.rpc import Answers, paced
from api.compat.e2b.inside.signature import Signed, signature_of, signer
from api.shape.objects import parse_object, validated
from orchestrator.ground.errors import (
    ConflictError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    SandboxUnavailableError,
    TooLargeError,
    UnauthorizedError,
    ValidationError,
)
from orchestrator.work.files.file_entries import FileEntry
from paddock.contract.code import CodeValue
from paddock.contract.commands import EXIT, ExitData, OutputData
from paddock.contract.file_trees import FileChange
from tests.support.limits import WAIT_SECONDS

MOST = 4096


def decoded(pieces: Sequence[bytes], most: int = MOST) -> list[Envelope]:
    decoder, found = Decoder(most), []
    for piece in pieces:
        decoder.feed(piece)
        while (envelope := decoder.next()) is not None:
            found.append(envelope)
    decoder.finish()
    return found


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    ends = sorted({min(place, len(data)) for place in places} | {len(data)})
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


# Envelopes.


@given(
    st.lists(st.tuples(st.sampled_from((0, END)), st.binary(max_size=200)), max_size=20),
    st.lists(st.integers(0, 5000), max_size=30),
)
def test_envelopes_are_found_however_they_are_cut(
    given_ones: list[tuple[int, bytes]], places: list[int]
) -> None:
    stream = b"".join(encode(data, flags) for flags, data in given_ones)
    assert decoded(cut(stream, places)) == [Envelope(*each) for each in given_ones]


@given(st.binary(max_size=2000), st.lists(st.integers(0, 2000), max_size=20))
def test_any_bytes_are_envelopes_or_refused(data: bytes, places: list[int]) -> None:
    try:
        found = decoded(cut(data, places))
    except (ValidationError, TooLargeError):
        return
    assert b"".join(encode(each.data, each.flags) for each in found) == data


@given(st.integers(MOST + 1, 2**32 - 1))
def test_a_length_is_refused_before_its_bytes_come(length: int) -> None:
    decoder = Decoder(MOST)
    decoder.feed(struct.pack(">BI", 0, length))
    with pytest.raises(TooLargeError, match=str(length)):
        decoder.next()


@given(st.integers(0, 255).filter(lambda flags: flags & COMPRESSED))
def test_compressed_messages_are_refused(flags: int) -> None:
    with pytest.raises(ValidationError, match="compressed"):
        decoded([encode(b"{}", flags)])


@given(st.binary(min_size=1, max_size=50), st.data())
def test_a_cut_stream_is_refused(data: bytes, draw: st.DataObject) -> None:
    whole = encode(data)
    end = draw.draw(st.integers(1, len(whole) - 1))
    with pytest.raises(ValidationError, match="middle"):
        decoded([whole[:end]])


# Errors.


def test_each_error_has_a_code_of_connect() -> None:
    table = [
        (ValidationError("x"), "invalid_argument", 400),
        (UnauthorizedError("x"), "unauthenticated", 401),
        (PermissionDeniedError("x"), "permission_denied", 403),
        (NotFoundError("x"), "not_found", 404),
        (ExistsError("x"), "already_exists", 409),
        (ConflictError("x"), "invalid_argument", 400),
        (RateLimitedError("x"), "resource_exhausted", 429),
        (DeadlineError("x"), "deadline_exceeded", 504),
        (GoneError("sess-1"), "unavailable", 503),
        (SandboxUnavailableError("x"), "unavailable", 503),
    ]
    for error, code, status in table:
        assert code_of(error) == code, error
        assert failure(error, "r").status == status, error
    assert "was not found" in GoneError("sess-1").detail


def test_a_refusal_says_its_rule_and_what_to_do() -> None:
    response = failure(PermissionDeniedError("no", rule="shell-operators"), "r")
    assert response.text is not None
    assert "shell-operators" in response.text
    assert "level that allows any command" in response.text


# Signatures.


def signed(signature: str, expiration: str | None = None) -> Signed:
    return Signed("/home/user/a", "read", "user", signature, expiration)


def test_a_signature_is_as_the_clients_make_it() -> None:
    raw = hashlib.sha256(b"/home/user/a:read:user:token").digest()
    expected = "v1_" + base64.b64encode(raw).decode().rstrip("=")
    assert signature_of(signed(""), "token") == expected
    raw = hashlib.sha256(b"/home/user/a:read:user:token:170").digest()
    expected = "v1_" + base64.b64encode(raw).decode().rstrip("=")
    assert signature_of(signed("", "170"), "token") == expected


def test_the_signer_is_found_among_all() -> None:
    good = signature_of(signed(""), "two")
    assert signer(signed(good), ["one", "two", "three"], 0.0) == "two"
    for bad in (good[:-1], good + "A", "", "v1_", "é", "\ud800"):
        with pytest.raises(UnauthorizedError, match="invalid"):
            signer(signed(bad), ["one", "two", "three"], 0.0)
    with pytest.raises(UnauthorizedError):
        signer(signed(good)._replace(operation="write"), ["two"], 0.0)


def test_a_signature_expires() -> None:
    good = signature_of(signed("", "1000"), "two")
    assert signer(signed(good, "1000"), ["two"], 1000.0) == "two"
    with pytest.raises(UnauthorizedError, match="expired"):
        signer(signed(good, "1000"), ["two"], 1000.5)
    for odd in ("-1", "1e9", "٣", "9" * 50, ""):
        made = signature_of(signed("", odd), "two")
        with pytest.raises(UnauthorizedError, match="expired"):
            signer(signed(made, odd), ["two"], 0.0)


# Messages.


def test_messages_are_read_as_protobufs_json() -> None:
    start = validated(
        Start,
        parse_object(
            b'{"process": {"cmd": "/bin/bash", "args": ["-l"], "envs": null, "more": 1},'
            b' "pty": {"size": {"cols": 100, "rows": "30"}}, "stdin": false, "unknown": []}'
        ),
    )
    assert (start.process.cmd, start.process.envs, start.stdin) == ("/bin/bash", {}, False)
    assert start.pty is not None
    assert (start.pty.size.cols, start.pty.size.rows) == (100, 30)
    given_input = validated(
        SendInput, {"process": {"pid": "2147483647"}, "input": {"stdin": "-_8"}}
    )
    assert given_input.process.pid == 2**31 - 1
    assert given_input.input.stdin == b"\xfb\xff"
    assert validated(Watch, {"path": "a", "includeEntry": True}).include_entry
    assert validated(Watch, {"path": "a", "include_entry": True}).include_entry
    assert validated(SendSignal, {"process": {"pid": 1}, "signal": 9}).signal == 9


@given(st.binary(max_size=100))
def test_bytes_are_base64_of_any_kind(data: bytes) -> None:
    for text in (base64.b64encode(data), base64.urlsafe_b64encode(data)):
        for shown in (text, text.rstrip(b"=")):
            assert validated(Input, {"stdin": shown.decode()}).stdin == data


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists))
def test_odd_members_are_refused(value: Any) -> None:
    with pytest.raises(ValidationError, match="process"):
        validated(Start, {"process": value})


# Paths and entries.


def test_paths_begin_in_the_workspace() -> None:
    table = {
        "": ".",
        "~": ".",
        "~/a": "a",
        "a/b": "a/b",
        "/home/user": ".",
        "/home/user/a": "a",
        "/home/users": "/home/users",
        "/tmp/x": "/tmp/x",
        "/workspace/a": "/workspace/a",
    }
    for path, expected in table.items():
        assert inner(path, "/workspace") == expected, path
    assert inner("/home/user/a", "/home/user") == "/home/user/a"
    assert absolute("a/../b", "/home/user") == "/home/user/b"


def entry(path: str, kind: str = "file", **members: Any) -> FileEntry:
    usual = {"size": 5, "mode": "0644", "modified": 1772616612.48, "target": None}
    return FileEntry(path, kind, **{**usual, **members})


def test_an_entry_is_shown_whole() -> None:
    assert entry_info(entry("a/b.txt"), "/home/user") == {
        "name": "b.txt",
        "type": "FILE_TYPE_FILE",
        "path": "/home/user/a/b.txt",
        "size": "5",
        "mode": 0o644,
        "permissions": "-rw-r--r--",
        "owner": "user",
        "group": "user",
        "modifiedTime": "2026-03-04T09:30:12.480000Z",
    }
    link = entry("a/link", "symlink", target="../b", mode="0777")
    assert target_of(link, "/home/user") == "/home/user/b"
    shown = entry_info(link, "/home/user", leads_to="directory")
    assert (shown["type"], shown["symlinkTarget"]) == ("FILE_TYPE_DIRECTORY", "/home/user/b")
    assert shown["permissions"] == "lrwxrwxrwx"
    assert entry_info(entry("a", "other"), "/w")["type"] == "FILE_TYPE_UNSPECIFIED"
    attributes = {"team": "x"}
    assert entry_info(entry("a", attributes=attributes), "/w")["metadata"] == attributes


@given(st.floats(allow_nan=False))
def test_any_time_has_a_text(seconds: float) -> None:
    assert time_text(seconds).endswith("Z")


def test_a_directory_comes_before_its_content() -> None:
    names = ["a b", "a", "a/c", "a.txt", "a/b"]
    assert [each.path for each in in_order([entry(name) for name in names])] == [
        *("a", "a/b", "a/c", "a b", "a.txt")
    ]


@given(st.text(min_size=1))
def test_numbers_are_those_of_processes(process_id: str) -> None:
    assert 0 < number_of(process_id) < 2**31
    assert number_of(process_id) == number_of(process_id)


# Changes.


def change(kind: str, path: str, source: str | None = None, **members: Any) -> FileChange:
    given_ones = {"kind": kind, "path": path, "directory": False, "source": source, **members}
    return FileChange.model_validate(given_ones)


def told(
    changes: Sequence[FileChange], uploads: Mapping[str, int], directory: str = "/home/user/d"
) -> list[str]:
    translating = Changes(directory, "/home/user", lambda path: uploads.get(path, 0))
    events = [event for each in changes for event in translating.take(each)]
    return [f"{event.type.removeprefix('EVENT_TYPE_').lower()} {event.name}" for event in events]


def test_an_uploaded_file_is_created_changed_and_written_once() -> None:
    uploads = {"/home/user/d/a": 3}
    created = change("create", "d/a")
    expected = ["create a", "chmod a", "write a"]
    assert told([created], uploads) == expected
    again = [created, change("delete", "d/a"), created, change("write", "d/a")]
    assert told(again, uploads) == [*expected, "remove a", "create a", "write a"]
    assert told([change("write", "d/a"), created], uploads) == ["write a", "create a"]


def test_what_programs_do_is_told_by_its_kind() -> None:
    table = [
        (change("create", "d/a"), ["create a"]),
        (change("create", "d/sub", directory=True), ["create sub"]),
        (change("delete", "d/a"), ["remove a"]),
        (change("move", "d/b", "d/a"), ["rename a", "create b"]),
        (change("move", "d/b"), ["create b"]),
        (change("attributes", "d/sub/a"), ["chmod sub/a"]),
        (change("write", "d/a"), ["write a"]),
        (change("overflow", "d"), []),
    ]
    for each, expected in table:
        assert told([each], {}) == expected, each


# Ends of commands.


def exit_data(**members: Any) -> ExitData:
    return ExitData.model_validate({"command_id": "c", **EXIT, **members})


def test_how_a_command_ended() -> None:
    end = ending(exit_data(), printed=False)
    assert end == {"exitCode": 0, "exited": True, "status": "exit status 0"}
    end = ending(exit_data(exit_code=3), printed=True)
    assert (end["exitCode"], end["error"]) == (3, "exit status 3")
    end = ending(exit_data(exit_code=137, signal="SIGKILL"), printed=True)
    assert end == {
        **{"exitCode": -1, "exited": False},
        **{"status": "signal: killed", "error": "signal: killed"},
    }
    with pytest.raises(DeadlineError):
        ending(exit_data(exit_code=143, signal="SIGTERM", timed_out=True), printed=True)
    with pytest.raises(SandboxUnavailableError):
        ending(exit_data(exit_code=None), printed=True)
    with pytest.raises(ValidationError, match="no such directory"):
        ending(exit_data(exit_code=126, error="no such directory"), printed=False)


def test_what_was_not_kept_is_marked() -> None:
    def shown(**members: Any) -> bytes:
        return base64.b64decode(printed_data(OutputData(offset=0, **members)))

    assert shown(text="é") == "é".encode()
    assert shown(text="\ufffd", data_base64="/w==") == b"\xff"
    assert shown(text="a", cut=7) == b"\n[7 bytes of output were cut here]\na"


# Streams.


async def test_a_stream_that_never_pauses_ends_at_its_limit() -> None:
    closed = []

    async def endless() -> Answers:
        try:
            while True:
                await asyncio.sleep(0)
                yield {"n": 1}
        finally:
            closed.append(True)

    async def followed() -> None:
        async for each in paced(endless(), {}, 60.0, 0.01):
            assert each == {"n": 1}

    with pytest.raises(DeadlineError):
        await asyncio.wait_for(followed(), WAIT_SECONDS)
    assert closed == [True]


async def test_a_stream_that_pauses_has_signs_of_life() -> None:
    said = asyncio.Event()

    async def slow() -> Answers:
        await said.wait()
        yield {"n": 1}

    found = []
    async for each in paced(slow(), {"alive": 1}, 0.01, None):
        found.append(each)
        said.set()
    assert found[0] == {"alive": 1}
    assert found[-1] == {"n": 1}


# Compressed bodies.


async def _chunks(pieces: Sequence[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def inflate(pieces: Sequence[bytes]) -> list[bytes]:
    return [piece async for piece in inflated(_chunks(pieces))]


async def test_gzip_is_inflated_in_small_pieces() -> None:
    data = bytes(8 * 2**20)
    packed = gzip.compress(data)
    pieces = await inflate([packed[:10], packed[10:]])
    assert max(map(len, pieces)) <= 64 * 1024
    assert b"".join(pieces) == data
    two = gzip.compress(b"one") + gzip.compress(b"two")
    assert b"".join(await inflate([two])) == b"onetwo"
    for bad in (b"no gzip", packed[:-1], packed + b"more", b""):
        with pytest.raises(ValidationError):
            await inflate([bad])


@given(st.binary(max_size=5000), st.lists(st.integers(0, 5000), max_size=10))
async def test_what_is_deflated_is_inflated(data: bytes, places: list[int]) -> None:
    packed = b"".join([piece async for piece in deflated(_chunks(cut(data, places)))])
    assert gzip.decompress(packed) == data
    assert b"".join(await inflate(cut(packed, places))) == data


@given(st.binary(max_size=500))
async def test_any_bytes_are_inflated_or_refused(data: bytes) -> None:
    try:
        found = b"".join(await inflate([data]))
    except ValidationError:
        return
    assert found == zlib.decompressobj(31).decompress(data) or data.count(b"\x1f\x8b") > 1


# The interpreter.


def test_a_quoted_string_is_shown_without_its_quotes() -> None:
    table = {"'hello'": "hello", '"it\'s"': "it's", "42": "42", "'": "'", "": "", "'a\"": "'a\""}
    for text, expected in table.items():
        assert result(CodeValue(main=True, text=text))["text"] == expected, text
    shown = result(CodeValue(main=False, png="AA==", value={"a": 1}, other={"x/y": "z"}))
    assert shown == {
        **{"type": "result", "is_main_result": False, "png": "AA=="},
        **{"json": {"a": 1}, "extra": {"x/y": "z"}},
    }


def test_variables_of_a_cell_are_quoted() -> None:
    odd = {"A": 'it\'s "x"\n$(id) \\'}
    assert setting("bash", odd) == "export A='it'\"'\"'s \"x\"\n$(id) \\'"
    names: dict[str, Any] = {}
    import os  # the cell's code has its own

    before = dict(os.environ)
    exec(setting("python", odd), names)
    assert os.environ["A"] == odd["A"]
    exec(unsetting("python"), names)
    assert dict(os.environ) == before
    with pytest.raises(ValidationError, match="A B"):
        setting("python", {"A B": "x"})
    with pytest.raises(ValidationError, match="with r"):
        setting("r", odd)

"""The file of an archived chain: written, and verified without a control plane. It blocks.

It is a gzip-compressed tar. `manifest.json` comes first: whose chain it is, the head of the chain,
and size and SHA-256 of every other member. `events.jsonl` is the exported chain; `approvals.jsonl`
and `terminals.jsonl` are the rows of the same session; `evidence/…` is the evidence of its
terminals.
"""

import hashlib
import io
import json
import os
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from paddock.audit.chain import Chain, Verdict, canonical

FORMAT = "paddock-archive-1"
SUFFIX = ".tar.gz"
EVENTS, APPROVALS, TERMINALS, EVIDENCE = (
    "events.jsonl",
    "approvals.jsonl",
    "terminals.jsonl",
    "evidence",
)
_MANIFEST = "manifest.json"
_MOST_MANIFEST_BYTES = 16 * 1024 * 1024
_PIECE = 1024 * 1024
_UNREADABLE = (
    *(OSError, EOFError, zlib.error, tarfile.TarError),
    *(ValueError, KeyError, TypeError, RecursionError),
)
_LONGEST_LINE = 1024 * 1024


class ArchiveError(Exception):
    """A file that can't be written or read as an archive; the message is one sentence."""


class Seal(NamedTuple):
    """The record of an archive: the head of its chain, and the file."""

    seq: int
    hash: str
    sha256: str
    bytes: int


class Verified(NamedTuple):
    """A verified archive: the verdict on its chain, and its manifest."""

    verdict: Verdict
    manifest: dict[str, Any]
    seal: Seal


def write(
    target: Path, about: dict[str, Any], head: tuple[int, str], source: Path, evidence: Path
) -> Seal:
    """Packs the files of `source`, and those below `evidence` if it exists.

    The file is durable and has been read back before it gets its name. Raises: ArchiveError.
    """
    seq, event_hash = head
    members = list(_members(source, evidence))
    manifest = {
        "format": FORMAT,
        **about,
        "head": {"seq": seq, "hash": event_hash},
        "files": {name: _digest(path) for name, path in members},
    }
    draft = target.with_name(f".{target.name}.draft")
    try:
        _pack(draft, canonical(manifest).encode(), members)
        verified = verify(draft)
        if not verified.verdict.ok:
            raise ArchiveError(f"the chain is not whole: {verified.verdict.reason}")
        draft.replace(target)
        _sync(target.parent)
    except OSError as error:
        raise ArchiveError(f"{target}: {error.strerror}") from None
    finally:
        draft.unlink(missing_ok=True)
    return verified.seal


def verify(path: Path, chain: Chain | None = None) -> Verified:
    """Recomputes everything in the archive.

    A verdict that is not ok gives the first error, in the chain or elsewhere. `chain` may contain
    events that were noted elsewhere.

    Raises: ArchiveError if it is not an archive at all.
    """
    try:
        sha256, size = _file_digest(path)
        with tarfile.open(path, "r:gz") as archive:
            manifest = _manifest(archive)
            verdict = _verify(archive, manifest, chain or Chain())
            _read_rest(archive)
        if verdict.ok and verdict.seq == 0:
            raise ValueError("it has no event")
    except _UNREADABLE as error:
        detail = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ArchiveError(f"{path}: is no archive that can be read: {detail}") from None
    return Verified(verdict, manifest, Seal(verdict.seq, verdict.hash, sha256, size))


def _verify(archive: tarfile.TarFile, manifest: dict[str, Any], chain: Chain) -> Verdict:
    seen = set[str]()
    told: dict[str, str] = {}
    problem: str | None = None
    for number, member in enumerate(archive):
        name = member.name
        if number == 0:  # the manifest itself
            continue
        listed = manifest["files"].get(name)
        data = archive.extractfile(member) if member.isfile() else None
        if listed is None or data is None or name in seen:
            problem = problem or f"{name} is not in the manifest"
            continue
        seen.add(name)
        lines = _followed(data, chain, told) if name == EVENTS else _pieces(data)
        if _summed(lines) != listed:
            problem = problem or f"{name} is not as it was archived"
        expected = told.get(name)
        if expected is not None and expected != f"sha256:{listed['sha256']}":
            problem = problem or f"{name} is not the evidence that the chain tells of"
    missing = sorted({*manifest["files"], *told} - seen)
    if missing:
        problem = problem or f"{missing[0]} is missing"
    verdict = chain.verdict()
    head = {"seq": verdict.seq, "hash": verdict.hash}
    if verdict.ok and head != manifest["head"]:
        problem = problem or "the chain does not end as the manifest says"
    if not verdict.ok or problem is None:
        return verdict
    return Verdict(False, verdict.seq, problem, verdict.seq, verdict.hash)


def _read_rest(archive: tarfile.TarFile) -> None:
    """Reads to the end, as only the end has the checksum of all compressed data."""
    file = archive.fileobj
    while file is not None and file.read(_PIECE):
        pass


def _followed(data: IO[bytes], chain: Chain, told: dict[str, str]) -> Iterator[bytes]:
    """Yields the lines while `chain` follows them; `told` receives the evidence that they name."""
    while line := data.readline(_LONGEST_LINE + 1):
        if len(line) > _LONGEST_LINE:
            raise ValueError("a line is too long")
        chain.follow(line.decode("utf-8", "surrogateescape"))
        if (b'"pty.close"' in line or b'"command.evidence"' in line) and not chain.broken:
            told |= _evidence_of(json.loads(line))
        yield line


def _evidence_of(event: dict[str, Any]) -> dict[str, str]:
    """The files of an ended terminal or command, and their digests, without lost ones."""
    result = event.get("result") or {}  # it may be erased
    if event["operation"] == "command.evidence" and "output_hash" in result:
        return {f"{EVIDENCE}/{event['args']['command_id']}/output": result["output_hash"]}
    if event["operation"] != "pty.close":
        return {}
    directory = f"{EVIDENCE}/{event['args']['terminal_id']}"
    names = {
        "raw": "raw_hash",
        "transcript.log": "transcript_hash",
        "recording.cast": "recording_hash",
    }
    return {f"{directory}/{n}": result[m] for n, m in names.items() if result.get(m) is not None}


def _members(source: Path, evidence: Path) -> Iterator[tuple[str, Path]]:
    for name in (EVENTS, APPROVALS, TERMINALS):
        yield name, source / name
    if evidence.is_dir():
        for path in sorted(evidence.rglob("*")):
            if path.is_file() and not path.is_symlink():
                yield f"{EVIDENCE}/{path.relative_to(evidence).as_posix()}", path


def _pack(draft: Path, manifest: bytes, members: Iterable[tuple[str, Path]]) -> None:
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        with tarfile.open(fileobj=file, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
            archive.addfile(_info(_MANIFEST, len(manifest)), io.BytesIO(manifest))
            for name, path in members:
                with path.open("rb") as data:
                    archive.addfile(_info(name, os.fstat(data.fileno()).st_size), data)
        file.flush()
        os.fsync(file.fileno())


def _info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o600
    return info


def _manifest(archive: tarfile.TarFile) -> dict[str, Any]:
    member = archive.next()
    if member is None or member.name != _MANIFEST or member.size > _MOST_MANIFEST_BYTES:
        raise ValueError("its manifest is missing")
    file = archive.extractfile(member)
    manifest = json.loads(b"" if file is None else file.read())
    if manifest["format"] != FORMAT or not isinstance(manifest["files"], dict):
        raise ValueError("it has another format")
    session = manifest["session"]
    named = isinstance(session["key"], str) and isinstance(session["id"], str)
    if not named or type(session["incarnation"]) is not int:
        raise ValueError("it does not say whose chain it has")
    return dict(manifest)


def _digest(path: Path) -> dict[str, Any]:
    sha256, size = _file_digest(path)
    return {"bytes": size, "sha256": sha256}


def _file_digest(path: Path) -> tuple[str, int]:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), file.tell()


def _summed(pieces: Iterable[bytes]) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    for piece in pieces:
        digest.update(piece)
        size += len(piece)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Operations on the files of the session's workspace, through its sandbox."""

import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing

from orchestrator.ground.errors import ConflictError, NotFoundError
from orchestrator.programs.turns.operations.context import OperationContext
from orchestrator.programs.turns.operations.patched import MOST_PATCH, patched_refs
from orchestrator.programs.turns.operations.turn_operation import Done, StagedChange, turn_operation
from orchestrator.programs.turns.outcome import Value
from orchestrator.programs.turns.programs import OperationFailed
from orchestrator.work.files.downloads import FileDownload
from orchestrator.work.files.file_entries import FileEntry
from sandbox_agent.decide.protocol import CHUNK_BYTES

# Of a file that a program reads as a whole.
_MOST_FILE_BYTES = 4 * 1024 * 1024
_DEPTH = 64
# Of one search: what it looks at, and what it finds.
_MOST_SEARCHED_FILES = 1000
_MOST_SEARCHED_BYTES = 16 * 1024 * 1024
_MOST_MATCHES = 500
_LONGEST_LINE = 500


async def read(context: OperationContext, ref: str) -> Done:
    """The text of a file."""
    data = await _content(context, ref, _MOST_FILE_BYTES)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise OperationFailed(f"world.read: {ref} is not UTF-8 text") from None
    return Done(text, _identity(data))


async def list_(context: OperationContext, ref: str = ".", depth: int = 1) -> Done:
    """The paths below a directory that the policy lets the program read; directories end in `/`."""
    entries, truncated = await _entries(context, ref, depth)
    names = [each.path + ("/" if each.type == "directory" else "") for each in entries]
    return Done(tuple(names), {"entries": len(names), "truncated": truncated})


async def search(context: OperationContext, text: str, ref: str = ".") -> Done:
    """The lines that contain a text, as lists of path, number and line."""
    if not text:
        raise OperationFailed("world.search: text must not be empty")
    entries, truncated = await _entries(context, ref, _DEPTH)
    files = [each.path for each in entries if each.type == "file"]
    truncated = truncated or len(files) > _MOST_SEARCHED_FILES
    found: list[Value] = []
    left = _MOST_SEARCHED_BYTES
    looked = 0
    for name in files[:_MOST_SEARCHED_FILES]:
        if left <= 0 or len(found) >= _MOST_MATCHES:
            truncated = True
            break
        try:
            data = await _content(context, name, left)
        except (OperationFailed, NotFoundError, ConflictError):
            truncated = True  # too long, or gone meanwhile
            continue
        left -= len(data)
        looked += 1
        lines = data.decode("utf-8", "replace").splitlines()
        found += [
            (name, number, line[:_LONGEST_LINE])
            for number, line in enumerate(lines, 1)
            if text in line
        ]
    recorded = {"matches": len(found), "files": looked, "truncated": truncated}
    return Done(tuple(found[:_MOST_MATCHES]), recorded)


async def fingerprint(context: OperationContext, ref: str) -> Done:
    """The digest of a file's content: `sha256:` and 64 hexadecimal digits."""
    opened = await _open(context, ref)
    digest, size = hashlib.sha256(), 0
    try:
        async for chunk in opened.chunks():
            digest.update(chunk)
            size += len(chunk)
    finally:
        await opened.close()
    return Done(f"sha256:{digest.hexdigest()}", {"bytes": size, "sha256": digest.hexdigest()})


async def write(context: OperationContext, ref: str, text: str) -> Done:
    """Writes a file with that text, and makes the directories above it; returns its size."""
    data = _encoded(text)
    async with aclosing(_chunks(data)) as pieces:
        size = await context.services.files.write(
            context.principal, context.session, ref, "overwrite", pieces, parents=True
        )
    return Done(size, _identity(data), staged=(StagedChange("write", ref=ref),))


async def patch(context: OperationContext, patch: str) -> Done:
    """Applies a unified diff to files, all or nothing; returns lists of what was done and path."""
    if len(patch) > MOST_PATCH:
        raise OperationFailed(f"world.patch: a patch has at most {MOST_PATCH} characters")
    try:
        done = await context.services.file_trees.patch(
            context.principal, context.session, ".", patch
        )
    except ConflictError as error:
        rejects = error.fields.get("rejects", ())
        reasons = [f"{each['path']}: {each['header']} {each['reason']}" for each in rejects]
        raise OperationFailed("\n".join([f"world.patch: {error.detail}", *reasons[1:]])) from None
    _, writes, deletes = patched_refs(patch)
    staged = [StagedChange("write", ref=ref) for ref in writes]
    staged += [StagedChange("delete", ref=ref) for ref in deletes]
    value = tuple((each.action, each.path) for each in done)
    return Done(value, {"files": len(done)}, staged=tuple(staged))


async def delete(context: OperationContext, ref: str) -> Done:
    """Removes a file, a link or an empty directory."""
    await context.services.files.delete(context.principal, context.session, ref)
    return Done(True, staged=(StagedChange("delete", ref=ref),))


async def _open(context: OperationContext, ref: str) -> FileDownload:
    """Opens a file without following links: the policy's patterns are about names."""
    return await context.services.files.read(context.principal, context.session, ref, links=False)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise OperationFailed("world.write: text is not valid Unicode") from None


async def _chunks(data: bytes) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(data), CHUNK_BYTES):
        yield data[start : start + CHUNK_BYTES]


async def _content(context: OperationContext, ref: str, most: int) -> bytes:
    opened = await _open(context, ref)
    try:
        data = bytearray()
        if opened.size <= most:
            async for chunk in opened.chunks():
                data += chunk
                if len(data) > most:
                    break
        if max(opened.size, len(data)) > most:
            raise OperationFailed(f"{ref} has more than {most} bytes")
        return bytes(data)
    finally:
        await opened.close()


async def _entries(context: OperationContext, ref: str, depth: int) -> tuple[list[FileEntry], bool]:
    """What is below a directory and may be read, and whether there is more."""
    if not 1 <= depth <= _DEPTH:
        raise OperationFailed(f"depth must be 1 to {_DEPTH}")
    listing = await context.services.files.list(context.principal, context.session, ref, depth)
    rules = context.scopes.policy.world_rules
    return [each for each in listing.entries if rules.may_read(each.path)], listing.truncated


def _identity(data: bytes) -> dict[str, int | str]:
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


OPERATIONS = (
    turn_operation("world.read", read),
    turn_operation("world.list", list_),
    turn_operation("world.search", search),
    turn_operation("world.fingerprint", fingerprint),
    turn_operation("world.write", write),
    turn_operation("world.patch", patch),
    turn_operation("world.delete", delete),
)

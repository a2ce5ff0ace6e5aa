"""Carries out a build: a session gets the files and runs the lines, and a snapshot is taken."""

import posixpath
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

from api.compat.call import Call
from api.compat.e2b.builds.builds import Build, Uploaded
from api.compat.e2b.builds.built import Built, all_built, superseded, texts
from api.compat.e2b.builds.reuse import Recipe, beginning
from api.compat.e2b.builds.starting import begin, run_line
from api.compat.e2b.builds.steps import HOME, Copy, Enter, Run, Step
from api.compat.e2b.failure import message
from api.compat.e2b.inside.inflate import inflated
from api.compat.e2b.times import new_times
from api.operations.commands import execute
from api.operations.file_archives import write_archive
from api.operations.files import delete_file, list_files
from api.operations.named_snapshots import create_snapshot, remove_snapshot
from api.operations.sessions import close_session, create_session
from api.shape.context import Context
from api.shape.objects import validated
from orchestrator.ground.errors import NotFoundError, PaddockError, ValidationError
from paddock.contract.command_requests import ExecBody
from paddock.contract.files import ArchiveQuery, DeleteQuery, ListQuery
from paddock.contract.session_requests import CloseQuery, SessionBody
from paddock.contract.snapshots import SnapshotBody, SnapshotKeyQuery

# All steps of a build together.
_SECONDS = 3600
_GZIP = b"\x1f\x8b"
_FILES = ".e2b-build"
_FINAL = "finalize"
_CHOSEN = frozenset({"image", "template"})


class StepFailedError(ValidationError):
    """A step has failed; `step` is its number."""

    def __init__(self, step: str, text: str) -> None:
        super().__init__(text)
        self.step = step


async def carry_out(call: Call, build: Build, recipe: Recipe) -> None:
    """Carries out all steps and keeps the result; `build` says how it went.

    What an earlier build has done alike is taken over. The session is gone afterwards.
    """
    build.log(f"building {build.name}")
    try:
        async with _session(call, build, recipe) as (context, done):
            for step in recipe.plan.steps:
                if step.number > done:
                    await _do(call, context, build, step)
            await _finish(call, context, build, _base(context, recipe.wanted), recipe)
        build.state = "ready"
        build.log("the template is ready")
    except PaddockError as error:
        failed = error.step if isinstance(error, StepFailedError) else _FINAL
        build.fail(message(error), failed)


@asynccontextmanager
async def _session(call: Call, build: Build, recipe: Recipe) -> AsyncGenerator[tuple[Context, int]]:
    """The build's session, and how many steps have been done in its files."""
    context, done = await _begun(call, build, recipe)
    try:
        yield context, done
    finally:
        purged = validated(CloseQuery, {"purge": "true"})
        await call.context.work.complete(call.done(close_session, context=context, query=purged))


async def _begun(call: Call, build: Build, recipe: Recipe) -> tuple[Context, int]:
    found = beginning(await all_built(call), recipe)
    if found is not None:
        earlier, done = found
        try:
            context = await _made(call, {**earlier.base, "from_snapshot": earlier.snapshot_id})
        except NotFoundError:  # it was removed meanwhile
            pass
        else:
            build.log(f"CACHED steps 1 to {done}: those of the build {earlier.build_id}")
            return context, done
    return await _made(call, recipe.wanted), 0


async def _made(call: Call, wanted: Mapping[str, Any]) -> Context:
    members = {**wanted, **new_times(call, _SECONDS, pauses=False), "workspace_path": HOME}
    body = validated(SessionBody, members, {"levels": call.plane.levels})
    return call.in_session((await call.done(create_session, body=body)).model.id)


async def _do(call: Call, context: Context, build: Build, step: Step) -> None:
    number = str(step.number)
    try:
        if isinstance(step, Run):
            build.log(f"RUN {step.line}", step=number)
            printed = await run_line(call, context, step.line, step.directory, step.variables)
            build.log(printed, step=number)
        elif isinstance(step, Enter):
            build.log(f"WORKDIR {step.directory}", step=number)
            await _command(call, context, ["mkdir", "-p", step.directory])
        else:
            build.log(f"COPY {step.source} {step.destination}", step=number)
            await _copy(call, context, build.uploads.get(step.files), step)
    except PaddockError as error:
        raise StepFailedError(number, f"step {number} has failed: {message(error)}") from error


def _base(context: Context, wanted: Mapping[str, Any]) -> dict[str, str]:
    """What sandboxes of the template have in common with the session of its build."""
    session = context.session()
    base = {"permission_level": session.level.name}
    # The usual image may change; one that somebody has chosen, or has written over, stays.
    stays = bool(_CHOSEN & wanted.keys()) or session.level.root_bytes is not None
    return {**base, "image": session.terms.image} if stays else base


async def _finish(
    call: Call, context: Context, build: Build, base: dict[str, str], recipe: Recipe
) -> None:
    """What the template starts is tried, and its files are kept. Raises: as operations do."""
    ends = recipe.ends
    await begin(call, context, ends)
    kept = Built("", build.id, build.name, {}, build.tags, "", base, ends, recipe.digest)
    name = f"e2b-{build.id}"
    layer = context.session().level.root_bytes is not None
    members = {"name": name, "metadata": texts(kept), "layer": layer}
    body = validated(SnapshotBody, members)
    await call.done(create_snapshot, context=context, body=body)
    for each in superseded(await all_built(call)):
        try:
            await call.done(remove_snapshot, name=each.snapshot_id, query=SnapshotKeyQuery())
        except PaddockError as error:  # the next build tries it again
            build.log(f"an earlier build stays: {message(error)}", "warn")


async def _copy(call: Call, context: Context, uploaded: Uploaded | None, step: Copy) -> None:
    """Places uploaded files as `COPY` does. Raises: ValidationError, as operations do."""
    if uploaded is None or uploaded.spool is None:
        raise ValidationError("its files were not uploaded", field="steps")
    query = validated(ArchiveQuery, {"path": _FILES})
    async with aclosing(uploaded.spool.chunks()) as chunks:
        await call.done(write_archive, context=context, query=query, upload=_plain(chunks))
    directory, pattern = posixpath.split(step.source)
    top = posixpath.normpath(posixpath.join(_FILES, directory))
    if pattern == ".":
        await _into(call, context, [f"{_FILES}/."], step)
    else:
        await _into(call, context, await _matching(call, context, top, pattern), step)
    removed = validated(DeleteQuery, {"path": _FILES, "recursive": "true"})
    await call.done(delete_file, context=context, query=removed)


async def _matching(call: Call, context: Context, top: str, pattern: str) -> list[str]:
    """What an upload has in its one directory; a directory stands for what is in it."""
    query = validated(ListQuery, {"path": top, "depth": "1"})
    found = (await call.done(list_files, context=context, query=query)).items
    if not found:
        raise ValidationError(f"no file matches {pattern}", field="steps")
    return [f"{each.path}/." if each.type == "directory" else each.path for each in found]


async def _into(call: Call, context: Context, sources: list[str], step: Copy) -> None:
    destination = step.destination
    whole = destination.endswith("/") or len(sources) > 1 or sources[0].endswith("/.")
    parent = destination if whole else posixpath.dirname(destination)
    if step.mode is not None:
        changed = ["-type", "f", "-exec", "chmod", step.mode, "{}", "+"]
        await _command(call, context, ["find", *sources, *changed])
    await _command(call, context, ["mkdir", "-p", parent])
    await _command(call, context, ["cp", "-a", *sources, destination])


async def _command(call: Call, context: Context, argv: list[str]) -> None:
    """Raises: ValidationError if it fails."""
    body = validated(ExecBody, {"argv": argv, "merge": True})
    result = await call.done(execute, context=context, body=body)
    if result.exit_code != 0:
        raise ValidationError(f"{argv[0]}: {result.error or result.stdout.strip()[-1024:]}")


async def _plain(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """An archive, which may be compressed."""
    first = await anext(aiter(chunks), b"")

    async def all_of() -> AsyncGenerator[bytes]:
        yield first
        async for chunk in chunks:
            yield chunk

    whole = inflated(all_of()) if first.startswith(_GZIP) else all_of()
    async for chunk in whole:
        yield chunk

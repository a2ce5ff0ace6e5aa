"""Context packs: reading the files of a session's pack, showing and refining the pack."""

from contextlib import ExitStack

from api.operations.sessions import created
from api.shape.access import Access
from api.shape.answers import Created
from api.shape.byte_answers import Download
from api.shape.context import Context
from api.shape.operation import SESSION, WORK_ERRORS, operation
from api.views.packs import pack_of, pack_state
from orchestrator.sessions.refinement import Refinement
from orchestrator.sessions.sessions import Sessions
from orchestrator.work.files.files import Files
from paddock.contract.packs import EXAMPLE, PackState, ReadBody, RefineBody
from paddock.contract.sessions import CreatedSession

_TAG = "Context packs"
_REFINING = (
    *("conflict", "max_refinements_exceeded", "capacity_exhausted", "engine_unavailable"),
    "cluster_unavailable",
    "sandbox_unavailable",
)


@operation(
    "POST",
    SESSION + "/reads",
    Access.WORK,
    tag=_TAG,
    summary="Read a file of the session's context pack",
    answers="The file's bytes, whose hash is the `ETag`.",
    errors=(*WORK_ERRORS, "too_large"),
    examples={"file": {"path": "src/login.py"}},
)
async def read_packed_file(context: Context, files: Files, body: ReadBody) -> Download:
    """Returns the file's bytes after comparing them with the pack; a read that misses ends the
    session, unless its pack says otherwise."""
    session, work = context.session(), context.work
    with ExitStack() as held:
        held.enter_context(context.streaming("downloads", session))
        opened = await work.complete(
            files.read_packed(context.principal, session, body.path, body.hash),
            lambda download: work.detach(download.close()),
        )
        held.callback(lambda: work.detach(opened.close()))
        return Download(
            opened.size,
            opened.permissions,
            opened.modified,
            opened.chunks(),
            held.pop_all(),
            opened.content_hash,
        )


@operation(
    "GET",
    SESSION + "/consume",
    Access.READ,
    tag=_TAG,
    summary="Show a session's context pack",
    answers="The pack, and the reads that were denied.",
)
async def show_pack(context: Context, refinement: Refinement) -> PackState:
    """The pack of the latest session with that id that had one, also long after its end."""
    found = await refinement.show(context.principal, context.session_id)
    return pack_state(found)


@operation(
    "POST",
    SESSION + "/refine",
    Access.MANAGE,
    tag=_TAG,
    summary="Reissue a session with a refined context pack",
    answers="The new session, with its handle.",
    errors=_REFINING,
    examples={"pack": {"consume": EXAMPLE}},
)
async def refine_session(
    context: Context, refinement: Refinement, sessions: Sessions, body: RefineBody
) -> Created[CreatedSession]:
    """Creates a session for the same work, like one that ended by a `CONTEXT_MISS`, with another
    pack. A work item's pack can be refined 10 times."""
    request = await refinement.request(
        context.principal, context.session_id, pack_of(body.consume), body.env, body.secrets
    )
    return await created(context, sessions, request, named=True)

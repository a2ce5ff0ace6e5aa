"""The long-term memory: searched and written by sessions, kept in order by their hosts."""

from dataclasses import replace

from api.shape.access import Access
from api.shape.context import Context
from api.shape.operation import SESSION, operation
from api.views.memory import entry, shown
from orchestrator.ground.errors import PermissionDeniedError, ValidationError
from orchestrator.rules.access.keys import ADMIN_NAME, KeyRing, Role
from orchestrator.work.memory.entries import Wanted
from orchestrator.work.memory.memory import Memory
from paddock.contract.memory import (
    MemoryBootstrap,
    MemoryEntries,
    MemoryEntry,
    MemoryEntryBody,
    MemoryKeyQuery,
    MemoryListQuery,
    MemoryNamespaceQuery,
    MemorySearchQuery,
    NoteBody,
)

_TAG = "Memory"
_MEMORY = "/api/memory"
_ENTRY = _MEMORY + "/{entry_id}"
_OF_SESSION = SESSION + "/memory"
_NOTE = {"text": "The tests need PYTHONPATH=src.", "tags": ["build"]}
_EXAMPLES = {"note": _NOTE}
_HOST_EXAMPLES = {"sop": {"text": "Run the tests before you finish.", "kind": "sop"}}


@operation(
    "GET",
    _OF_SESSION,
    Access.WORK,
    tag=_TAG,
    summary="Search the memory",
    answers="The entries that were found, the best first.",
    errors=("permission_denied", "session_terminated", "conflict"),
)
async def search_memory(
    context: Context, memory: Memory, query: MemorySearchQuery
) -> MemoryEntries:
    """What sessions of this session's key have written, from level medium on."""
    found = await memory.search(
        context.principal, context.session(), query.query, query.namespace, query.limit
    )
    return MemoryEntries(items=shown(found), next=None)


@operation(
    "POST",
    _OF_SESSION,
    Access.WORK,
    tag=_TAG,
    summary="Write to the memory",
    answers="The entry.",
    errors=("permission_denied", "session_terminated", "conflict"),
    examples=_EXAMPLES,
)
async def write_memory(context: Context, memory: Memory, body: NoteBody) -> MemoryEntry:
    """Adds a note for later sessions of this session's key, at level high only."""
    wanted = Wanted(body.text, body.namespace, tuple(body.tags))
    writing = memory.write(context.principal, context.session(), wanted)
    return entry(await context.work.complete(writing))


@operation(
    "GET",
    _OF_SESSION + "/bootstrap",
    Access.WORK,
    tag=_TAG,
    summary="Show what a session begins with",
    answers="The entries, and the same as text for a model.",
    errors=("permission_denied", "session_terminated", "conflict"),
)
async def show_bootstrap(
    context: Context, memory: Memory, query: MemoryNamespaceQuery
) -> MemoryBootstrap:
    """The host's standing instructions (`sop`) and `bootstrap` entries, from level medium on.

    At most 20 entries; the text has at most 8,000 characters, and no entry is cut.
    """
    found = await memory.bootstrap(context.principal, context.session(), query.namespace)
    return MemoryBootstrap(items=shown(found.entries), text=found.text)


@operation(
    "GET",
    _MEMORY,
    Access.READ_ALL,
    tag=_TAG,
    summary="List the memory",
    answers="A page of entries, newest first.",
    errors=("cluster_unavailable",),
)
async def list_memory(context: Context, memory: Memory, query: MemoryListQuery) -> MemoryEntries:
    """The entries of the caller's key, or of all; `next` is the next page's `cursor`."""
    own = context.whole_for or context.principal.sees_owner
    if own is not None and query.key not in (None, own):
        raise PermissionDeniedError(
            "break-glass access concerns sessions: nobody sees the memory of other keys"
            if context.whole_for
            else "only an admin sees the memory of other keys"
        )
    found = await memory.page(own or query.key, query.namespace, query.cursor, query.limit)
    full = len(found) == query.limit
    return MemoryEntries(items=shown(found), next=found[-1].id if full else None)


@operation(
    "POST",
    _MEMORY,
    Access.MANAGE,
    tag=_TAG,
    summary="Add to the memory",
    answers="The entry.",
    errors=("conflict", "cluster_unavailable"),
    examples=_HOST_EXAMPLES,
)
async def add_memory(
    context: Context, memory: Memory, keys: KeyRing, query: MemoryKeyQuery, body: MemoryEntryBody
) -> MemoryEntry:
    """Adds an entry for the sessions of a key; `sop` and `bootstrap` are what they begin with."""
    adding = memory.add(context.principal, _owner(context, keys, query), _wanted(body))
    return entry(await context.work.complete(adding))


@operation(
    "PUT",
    _ENTRY,
    Access.MANAGE,
    tag=_TAG,
    summary="Replace an entry of the memory",
    answers="The entry.",
    errors=("not_found", "cluster_unavailable"),
    examples=_HOST_EXAMPLES,
)
async def change_memory(
    context: Context, memory: Memory, entry_id: str, body: MemoryEntryBody
) -> MemoryEntry:
    """Replaces what an entry contains. It is the host's from then on."""
    changing = memory.change(context.principal, entry_id, _wanted(body))
    return entry(await context.work.complete(changing))


@operation(
    "DELETE",
    _ENTRY,
    Access.MANAGE,
    tag=_TAG,
    summary="Remove an entry of the memory",
    answers="The entry as it was.",
    errors=("not_found", "cluster_unavailable"),
)
async def remove_memory(context: Context, memory: Memory, entry_id: str) -> MemoryEntry:
    """No later search finds it. An admin who does not see the key's memory gets no text."""
    removed = await context.work.complete(memory.remove(context.principal, entry_id))
    if context.whole_for in (None, removed.owner):
        return entry(removed)
    return entry(replace(removed, text="", tags=()))


def _wanted(body: MemoryEntryBody) -> Wanted:
    return Wanted(body.text, body.namespace, tuple(body.tags), body.kind)


def _owner(context: Context, keys: KeyRing, query: MemoryKeyQuery) -> str:
    """Raises: PermissionDeniedError for another key; ValidationError for an unknown one."""
    principal = context.principal
    if query.key is None or query.key == principal.name:
        return principal.name
    if principal.role is not Role.ADMIN:
        raise PermissionDeniedError("only an admin writes to the memory of other keys")
    if query.key != ADMIN_NAME and keys.named(query.key) is None:
        raise ValidationError(f"there is no key {query.key}", field="key")
    return query.key

"""The long-term memory: what sessions of a key remember for later ones."""

from typing import Annotated, Any, Literal

from pydantic import Field

from paddock.contract.base import WORDS, Model, Time, example
from paddock.contract.fields import KIB, MaxBytes, PageSize
from paddock.contract.requests import Body, Query

MOST_TEXT_BYTES = 8 * KIB
_NAMESPACE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

Namespace = Annotated[str, Field(pattern=_NAMESPACE, max_length=64)]
_Text = Annotated[str, Field(min_length=1), MaxBytes(MOST_TEXT_BYTES)]
_Tags = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=64)]],
    Field(max_length=16, examples=[["build"]]),
]
_Kind = Literal["note", "bootstrap", "sop"]

_ENTRY: dict[str, Any] = {
    "id": "mem-0123456789abcdef",
    "key": "ci",
    "namespace": "default",
    "kind": "note",
    "text": "The tests need PYTHONPATH=src.",
    "tags": ["build"],
    "session": "fix-1",
    "written_by": "ci",
    "created_at": "2026-03-04T09:30:12.482113Z",
    "changed_at": "2026-03-04T09:30:12.482113Z",
}


class MemoryEntry(Model):
    """One entry of the memory."""

    model_config = example(_ENTRY)

    id: str
    key: str = Field(description="The key whose sessions have it.")
    namespace: str
    kind: Annotated[_Kind, WORDS] = Field(
        description="`bootstrap` and `sop` are the host's: what sessions begin with."
    )
    text: str
    tags: list[str]
    session: str | None = Field(description="The session that wrote it; null: the host did.")
    written_by: str
    created_at: Time
    changed_at: Time


class MemoryEntries(Model):
    """A page of entries."""

    model_config = example({"items": [_ENTRY], "next": None})

    items: list[MemoryEntry]
    next: str | None


class MemoryBootstrap(Model):
    """What a session begins with."""

    model_config = example(
        {
            "items": [],
            "text": "",
        }
    )

    items: list[MemoryEntry]
    text: str = Field(
        description="The entries for a model, each between marks, as far as they fit."
    )


class MemorySearchQuery(Query):
    """What a session searches for."""

    query: Annotated[str, MaxBytes(KIB)] = Field(
        default="", description="Entries have one of its words; without any, the newest are shown."
    )
    namespace: Namespace = "default"
    limit: PageSize = Field(default=10, description="At most 50 are found.")


class MemoryNamespaceQuery(Query):
    """The namespace that is meant."""

    namespace: Namespace = "default"


class MemoryListQuery(Query):
    """Which entries a host sees."""

    key: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="A key's name, for those who see all; by default all."
    )
    namespace: Namespace | None = None
    cursor: Annotated[str, Field(max_length=64)] | None = None
    limit: PageSize = 100


class NoteBody(Body):
    """What a session remembers."""

    text: _Text
    namespace: Namespace = "default"
    tags: _Tags = Field(default_factory=list)


class MemoryEntryBody(NoteBody):
    """An entry that the host writes."""

    kind: _Kind = "note"


class MemoryKeyQuery(Query):
    """Whose sessions have the entry."""

    key: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="A key's name, for an admin; by default the caller's own."
    )

"""What the query parameters of requests look like, and their bounds."""

from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationInfo,
    field_validator,
)

from api.fields import Depth, FilePath, Label, Moment, PageSize, Positive, Truth, Whole, sentence


class Query(BaseModel):
    """Query parameters: no others than these, each at most once."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class NoQuery(Query):
    """No parameters."""


class SessionsQuery(Query):
    """`label` as key:value; `cursor` is the `next` of the page before.

    With `ended`, or a status that is final, all that ever ended so; otherwise those that live
    or ended lately.
    """

    status: (
        Literal["active", "paused", "ended", "completed", "aborted", "budget-exceeded"] | None
    ) = None
    label: Label | None = None
    limit: PageSize = 100
    cursor: Annotated[str, Field(max_length=128)] | None = None


class CloseQuery(Query):
    """`purge` removes the workspace as well."""

    purge: Truth = False


class OutputQuery(Query):
    """`after` counts bytes of output that are not wanted again."""

    after: Whole = 0


class PathQuery(Query):
    """A path in the workspace."""

    path: FilePath


class WriteQuery(PathQuery):
    """Whether what is sent replaces the file or goes to its end.

    `permissions`, in octal, are those of a file that is replaced or new; by default it keeps
    its own, or gets 0644. `parents`: directories that are missing above the file are made with it.
    """

    mode: Literal["overwrite", "append"] = "overwrite"
    permissions: Annotated[str, StringConstraints(pattern=r"^0?[0-7]{3}$")] | None = None
    parents: Truth = False


class ListQuery(Query):
    """A directory, and how many levels below it."""

    path: FilePath = "."
    depth: Depth = 1


class EventsQuery(Query):
    """The position of the last event that was seen: `seq` in a session, `id` in all."""

    after: Whole | None = None


class IncarnationQuery(Query):
    """Which of the sessions of that id; without it the latest."""

    incarnation: Positive | None = None


class AuditQuery(IncarnationQuery):
    """Filters over a session's events."""

    after: Whole = 0
    limit: PageSize = 100
    turn: Whole | None = None
    operation: Annotated[str, Field(max_length=64)] | None = None
    decision: Literal["allow", "deny", "pending"] | None = None


class SessionFilter(Query):
    """A session's id, and which of the sessions of that id."""

    session: Annotated[str, Field(max_length=128)] | None = None
    incarnation: Positive | None = None

    @field_validator("incarnation")
    @classmethod
    def _of_a_session(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("session") is None:
            raise sentence("incarnation is a session's: give session with it")
        return value


class ApprovalsQuery(SessionFilter):
    """`session` without `incarnation` is the latest of that id.

    `cursor` is the `next` of the page before.
    """

    status: Literal["pending", "approved", "denied", "expired"] | None = None
    limit: PageSize = 100
    cursor: Whole | None = None


class ArchivesQuery(Query):
    """`after` is the `next` of the page before."""

    after: Annotated[str, Field(max_length=64)] = ""
    limit: PageSize = 100


class SearchQuery(SessionFilter):
    """What is searched for over all sessions; what is left out does not matter.

    `text` is looked for in the whole event, in any case of ASCII letters; `from` and `to` are
    times, both included; `cursor` is the `next` of the page before.
    """

    owner: Annotated[str, Field(max_length=128)] | None = None
    operation: Annotated[str, Field(max_length=64)] | None = None
    decision: Literal["allow", "deny", "pending"] | None = None
    rule: Annotated[str, Field(max_length=256)] | None = None
    actor: Annotated[str, Field(max_length=256)] | None = None
    text: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    since: Moment | None = Field(default=None, alias="from")
    until: Moment | None = Field(default=None, alias="to")
    limit: PageSize = 100
    cursor: Positive | None = None


class ExportQuery(IncarnationQuery):
    """One JSON text per line is the only format."""

    format: Literal["jsonl"] = "jsonl"


class VerifyQuery(IncarnationQuery):
    """A place in the chain that was noted before: both or neither."""

    seq: Whole | None = None
    hash: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None

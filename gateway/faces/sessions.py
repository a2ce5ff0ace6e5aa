"""The list of sessions: the cluster's database says which and where, their nodes say what they are.

A node shows of the sessions that it is asked for those that the caller may see and that have what
the caller asks for, so the database need not know all of it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple

from gateway.faces.asking import Answer, Asking, Headers, Query, Reading
from gateway.faces.merging import Item
from gateway.members import Members
from orchestrator.cluster.directory import (
    MOST_SESSIONS,
    Directory,
    ListedSession,
    SessionFilters,
    SessionsPage,
)
from orchestrator.ground.events import time_text
from orchestrator.ground.serving.list_cursors import decode_cursor, encode_cursor
from paddock.contract.session_requests import SessionsQuery

_POSITION = frozenset({"cursor", "limit", "nextToken"})
# Ended sessions are looked for so far back; their node shows those that it still shows.
_ENDED = timedelta(days=1)


class ListPage(NamedTuple):
    """Items, the cursor of the next page, the nodes that did not answer, and other members."""

    items: Sequence[Item]
    next: str | None
    missing: Sequence[str]
    others: Mapping[str, object] = {}


class SessionForm(NamedTuple):
    """Where nodes list sessions, and what an item calls its id and the time of its creation."""

    path: str
    session_id: str
    created_at: str
    reading: Reading | None = None


OWN = SessionForm("/api/sessions", "id", "created_at")


class SessionList:
    """Pages of the sessions of all nodes."""

    def __init__(
        self, directory: Directory, members: Members, asking: Asking, form: SessionForm = OWN
    ) -> None:
        self._form = form
        self._directory = directory
        self._members = members
        self._asking = asking

    async def page(
        self, owner: str | None, wanted: SessionsQuery, given: Query, headers: Headers
    ) -> ListPage:
        """A page of the sessions of that owner (None: of all), in the order of one machine.

        `given` are the parameters as they were sent. Raises: ValidationError,
        ClusterUnavailableError, RefusedError.
        """
        after = None if wanted.cursor is None else decode_cursor(wanted.cursor)
        rows = await self._directory.sessions(
            owner, after, min(wanted.limit, MOST_SESSIONS), _filters(wanted)
        )
        return await self.shown(rows, given, headers)

    async def shown(self, found: SessionsPage, given: Query, headers: Headers) -> ListPage:
        """What nodes say of these rows. Raises: RefusedError, NodeUnavailableError."""
        most = max(1, len(found.items))
        keys: dict[str, list[str]] = defaultdict(list)
        for row in found.items:
            keys[row.node].append(row.session_key)
        members = [member for member in self._members.all if member.name in keys]
        passed = {name: text for name, text in given.items() if name not in _POSITION}

        def query(node: str, limit: int) -> Query:
            return {**passed, "keys": ",".join(keys[node]), "limit": str(most)}

        form = self._form
        check = partial(_is_list, form)
        asked = await self._asking.pages(
            members, form.path, query, headers, check, most, form.reading
        )
        unknown = keys.keys() - {member.name for member in members}
        missing = sorted({*asked.missing, *unknown})
        items = list(_in_order(form, found.items, asked.answers))
        following = None if found.next is None else encode_cursor(found.next)
        return ListPage(items, following, missing)


def _filters(wanted: SessionsQuery) -> SessionFilters:
    """What the database can tell of these conditions; each node checks all of them."""
    return SessionFilters(
        wanted.status,
        time_text(datetime.now(UTC) - _ENDED),
        {} if wanted.label is None else dict([wanted.label]),
        wanted.work_id,
        wanted.parent,
        wanted.order == "asc",
    )


def _is_list(form: SessionForm, answer: Answer) -> bool:
    """Whether it is a list of sessions."""
    items = answer.get("items")
    return isinstance(items, list) and all(
        isinstance(item, dict)
        and isinstance(item.get(form.session_id), str)
        and isinstance(item.get(form.created_at), str)
        for item in items
    )


def _in_order(
    form: SessionForm, rows: Sequence[ListedSession], answers: Mapping[str, Answer]
) -> Iterator[Item]:
    """The sessions in the order of the rows, each once; what nobody asked for is left out."""
    known = {
        (node, item[form.session_id], item[form.created_at]): item
        for node, answer in answers.items()
        for item in answer["items"]
    }
    for row in rows:
        item = known.pop((row.node, row.session_id, row.summary.created_at), None)
        if item is not None:
            yield item

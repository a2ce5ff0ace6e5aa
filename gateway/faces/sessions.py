"""The list of sessions: the cluster's database says which and where, their nodes say what they are.

A node shows of the sessions that it is asked for those that the caller may see and that have what
the caller asks for, so the database need not know all of it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from gateway.faces.asking import Answer, Asking, Headers, Query
from gateway.faces.merging import Item
from gateway.members import Members
from orchestrator.cluster.directory import (
    MOST_SESSIONS,
    Directory,
    ListedSession,
    SessionFilters,
)
from orchestrator.ground.events import time_text
from orchestrator.ground.serving.list_cursors import decode_cursor, encode_cursor
from paddock.contract.session_requests import SessionsQuery

_PATH = "/api/sessions"
# Ended sessions are looked for so far back; their node shows those that it still shows.
_ENDED = timedelta(days=1)


class ListPage(NamedTuple):
    """Items, the cursor of the next page, the nodes that did not answer, and other members."""

    items: Sequence[Item]
    next: str | None
    missing: Sequence[str]
    others: Mapping[str, object] = {}


class SessionList:
    """Pages of the sessions of all nodes."""

    def __init__(self, directory: Directory, members: Members, asking: Asking) -> None:
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
        most = min(wanted.limit, MOST_SESSIONS)
        found = await self._directory.sessions(owner, after, most, _filters(wanted))
        keys: dict[str, list[str]] = defaultdict(list)
        for row in found.items:
            keys[row.node].append(row.session_key)
        members = [member for member in self._members.all if member.name in keys]
        passed = {name: text for name, text in given.items() if name not in ("cursor", "limit")}

        def query(node: str, limit: int) -> Query:
            return {**passed, "keys": ",".join(keys[node]), "limit": str(most)}

        asked = await self._asking.pages(members, _PATH, query, headers, _is_list, most)
        unknown = keys.keys() - {member.name for member in members}
        missing = sorted({*asked.missing, *unknown})
        items = list(_in_order(found.items, asked.answers))
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


def _is_list(answer: Answer) -> bool:
    """Whether it is a list of sessions."""
    items = answer.get("items")
    return isinstance(items, list) and all(
        isinstance(item, dict)
        and isinstance(item.get("id"), str)
        and isinstance(item.get("created_at"), str)
        for item in items
    )


def _in_order(rows: Sequence[ListedSession], answers: Mapping[str, Answer]) -> Iterator[Item]:
    """The sessions in the order of the rows, each once; what nobody asked for is left out."""
    known = {
        (node, item["id"], item["created_at"]): item
        for node, answer in answers.items()
        for item in answer["items"]
    }
    for row in rows:
        item = known.pop((row.node, row.session_id, row.summary.created_at), None)
        if item is not None:
            yield item

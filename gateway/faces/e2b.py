"""E2B's lists over all nodes, in the form that its SDKs read: a list, and a header for more."""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.faces.asking import (
    Answer,
    Asking,
    Headers,
    Query,
    ask_for_list,
)
from gateway.faces.merging import Item
from gateway.faces.named_lists import NamedLists, by_position
from gateway.faces.queries import E2bSandboxesQuery, E2bSnapshotsQuery
from gateway.faces.sessions import ListPage, SessionForm, SessionList
from gateway.members import Members
from orchestrator.cluster.directory import MOST_SESSIONS, Directory, SessionFilters
from orchestrator.ground.errors import ValidationError
from orchestrator.ground.serving.list_cursors import decode_cursor, encode_cursor
from orchestrator.settings.e2b_names import TEMPLATE_LABEL

_E2B = "/compat/e2b"
_SANDBOXES = SessionForm(f"{_E2B}/v2/sandboxes", "sandboxID", "startedAt", ask_for_list)
_SNAPSHOTS = by_position(f"{_E2B}/snapshots", "nextToken", ask_for_list)
# Pages of sessions for one of sandboxes, since other sessions are none.
_MOST_LOOKS = 8
_TOKEN = "nextToken"  # noqa: S105 - a position, and no secret


class E2bLists:
    """Answers them."""

    def __init__(self, directory: Directory, members: Members, asking: Asking) -> None:
        self._directory = directory
        self._members = members
        self._asking = asking
        self._sandboxes = SessionList(directory, members, asking, _SANDBOXES)
        self._named = NamedLists(members, asking)

    async def sandboxes(
        self, owner: str | None, wanted: E2bSandboxesQuery, given: Query, headers: Headers
    ) -> ListPage:
        """A page of the sandboxes of that owner. Raises: as `SessionList.page`."""
        try:
            after = None if wanted.token is None else decode_cursor(wanted.token)
        except ValidationError:
            raise ValidationError(f"{_TOKEN} is not valid", field=_TOKEN) from None
        since, rising = wanted.started_after, wanted.order == "asc"
        if after is None and rising and since is not None:
            after = (since, "")  # nothing before it is wanted
        labels = {} if wanted.template is None else {TEMPLATE_LABEL: wanted.template}
        filters = SessionFilters("live", "", labels, oldest_first=rising)
        found: list[Item] = []
        missing: set[str] = set()
        for _ in range(_MOST_LOOKS):
            # No more than are still wanted: what is read is shown, and the cursor follows it.
            most = min(wanted.limit - len(found), MOST_SESSIONS)
            rows = await self._directory.sessions(owner, after, most, filters)
            page = await self._sandboxes.shown(rows, given, headers)
            found += page.items
            missing.update(page.missing)
            after = rows.next
            last = rows.items[-1].summary.created_at if rows.items else None
            if since is not None and last is not None and last < since and not rising:
                after = None  # those that follow are older than all that are wanted
            if after is None or len(found) == wanted.limit:
                break
        following = None if after is None else encode_cursor(after)
        return ListPage(found, following, sorted(missing))

    async def snapshots(
        self, wanted: E2bSnapshotsQuery, given: Query, headers: Headers
    ) -> ListPage:
        """A page of the caller's snapshots. Raises: as `NamedLists.page`."""
        page = await self._named.page(
            *(_SNAPSHOTS, wanted.token, wanted.limit),
            *({**given, "positions": "true"}, headers),
        )
        items = [{name: item[name] for name in item if name != "position"} for item in page.items]
        return page._replace(items=items)

    async def all_of(self, path: str, member: str, given: Query, headers: Headers) -> ListPage:
        """What all nodes have at that path, sorted by that member, each value of it once.

        Raises: RefusedError, NodeUnavailableError.
        """

        def check(answer: Answer) -> bool:
            return all(
                isinstance(item, dict) and isinstance(item.get(member), str)
                for item in answer["items"]
            )

        members = list(self._members.all)
        asked = await self._asking.pages(
            members, path, lambda *_: given, headers, check, 1, ask_for_list
        )
        return ListPage(_once(asked.answers, member), None, asked.missing)


def _once(answers: Mapping[str, Answer], member: str) -> Sequence[Any]:
    found: dict[str, Any] = {}
    for _, answer in sorted(answers.items()):
        for item in answer["items"]:
            found.setdefault(item[member], item)
    return [found[name] for name in sorted(found)]

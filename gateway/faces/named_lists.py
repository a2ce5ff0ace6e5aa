"""Lists of what keys have by name: volumes, snapshots, and archives of the record."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from gateway.faces.asking import Answer, Asking, Headers, Query, Reading
from gateway.faces.by_name import Key, KeyOf, NamePage, is_in_order, merged_names
from gateway.faces.merging import Item
from gateway.faces.sessions import ListPage
from gateway.members import Members


class NamedList(NamedTuple):
    """A list: where nodes have it, its parameter for positions, and how it is sorted.

    `key` is an item's, `text` a key's as a position, `read` what a position says.
    """

    path: str
    parameter: str
    key: KeyOf
    text: Callable[[Key], str]
    read: Callable[[str], Key]
    reading: Reading | None = None


def _of_owner(item: Item) -> Key:
    return _texts(item["key"], item["name"])


def _of_position(item: Item) -> Key:
    return _owner_and_name(_texts(item["position"])[0])


def _of_chain(item: Item) -> Key:
    return _texts(item["session_key"])


def _of_user(item: Item) -> Key:
    return _texts(item["name"])


def _owner_and_name(text: str) -> Key:
    owner, _, name = text.rpartition("/")
    return owner, name


def _texts(*values: object) -> Key:
    """Raises: TypeError."""
    found = tuple(value for value in values if isinstance(value, str))
    if len(found) != len(values):
        raise TypeError
    return found


VOLUMES = NamedList("/api/volumes", "cursor", _of_owner, "/".join, _owner_and_name)
SNAPSHOTS = NamedList("/api/snapshots", "cursor", _of_owner, "/".join, _owner_and_name)
ARCHIVES = NamedList(
    "/api/audit/archives", "after", _of_chain, lambda key: key[0], lambda text: (text,)
)


USERS = NamedList("/api/users", "cursor", _of_user, lambda key: key[0], lambda text: (text,))


def by_position(path: str, parameter: str, reading: Reading) -> NamedList:
    """A list whose items say where they are in it, if they are asked for `positions`."""
    return NamedList(path, parameter, _of_position, "/".join, _owner_and_name, reading)


class NamedLists:
    """Pages of such lists over all nodes."""

    def __init__(self, members: Members, asking: Asking) -> None:
        self._members = members
        self._asking = asking

    async def page(
        self, listed: NamedList, cursor: str | None, limit: int, given: Query, headers: Headers
    ) -> ListPage:
        """A page in the order of one machine; `given` are the parameters as they were sent.

        A node that did not answer is named, and its part of the page is left out. Raises:
        RefusedError, NodeUnavailableError.
        """
        after = listed.read(cursor) if cursor else None

        def query(_: str, most: int) -> Query:
            return {**given, "limit": str(most)}  # with the position as the client sent it

        asked = await self._asking.pages(
            list(self._members.all),
            listed.path,
            query,
            headers,
            partial(is_name_page, listed, after),
            limit,
            listed.reading,
        )
        pages = {name: _page(listed, answer) for name, answer in asked.answers.items()}
        found = merged_names(pages, limit)
        following = None if found.next is None else listed.text(found.next)
        return ListPage(found.items, following, asked.missing)


def is_name_page(listed: NamedList, after: Key | None, answer: Answer) -> bool:
    """Whether an answer is a page of the list that follows `after`, and leads on if it says so."""
    try:
        keys = [listed.key(item) for item in answer["items"]]
        following = answer["next"]
        until = None if following is None else listed.read(*_texts(following))
    except (KeyError, TypeError, AttributeError):
        return False
    if not is_in_order(keys, after):
        return False
    # Every page gets on, so that a client comes to the end.
    if until is None:
        return True
    return all(until) and until >= max(keys, default=()) and until > (after or ())


def _page(listed: NamedList, answer: Answer) -> NamePage:
    items = [(listed.key(item), item) for item in answer["items"]]
    following = answer["next"]
    return NamePage(items, None if following is None else listed.read(following))

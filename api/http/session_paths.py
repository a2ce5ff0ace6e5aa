"""The paths below a session: found by the word after its id, and not tried one after the other."""

from collections.abc import Iterator
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler
from yarl import URL

from api.shape.operation import SESSION

# What precedes the word among the parts of a path.
_BEFORE = SESSION.count("/") + 1


class SessionPaths(web.AbstractResource):
    """All resources below a session, as one.

    The router tries each resource that has the same first words, and most paths of the API begin
    with those of a session.
    """

    def __init__(self) -> None:
        super().__init__()
        self._by_word: dict[str, list[web.DynamicResource]] = {}

    def add_route(self, method: str, path: str, handler: Handler) -> None:
        """Adds a route; its path has a plain word after the session's id, or nothing."""
        resources = self._by_word.setdefault(_word(path), [])
        known = (each for each in resources if each.raw_match(path))
        resource = next(known, None)
        if resource is None:
            resource = web.DynamicResource(path)
            resources.append(resource)
        resource.add_route(method, handler)

    async def resolve(self, request: web.Request) -> tuple[Any, set[str]]:
        """The route of a request, and which methods its path has."""
        allowed: set[str] = set()
        for resource in self._by_word.get(_word(request.rel_url.path_safe), ()):
            found, methods = await resource.resolve(request)
            if found is not None:
                return found, methods
            allowed |= methods
        return None, allowed

    @property
    def canonical(self) -> str:
        """The path that all of them begin with."""
        return SESSION

    def __len__(self) -> int:
        return sum(map(len, self._resources))

    def __iter__(self) -> Iterator[web.AbstractRoute]:
        for resource in self._resources:
            yield from resource

    @property
    def _resources(self) -> list[web.DynamicResource]:
        return [each for resources in self._by_word.values() for each in resources]

    def url_for(self, **parts: str) -> URL:
        """The address of a session."""
        return URL.build(path=SESSION.format(**parts))

    def raw_match(self, path: str) -> bool:
        """Whether another resource's path is this one's."""
        return path == SESSION

    def get_info(self) -> Any:
        """What is shown of it."""
        return {"formatter": SESSION}

    def add_prefix(self, prefix: str) -> None:
        """Puts a prefix before each path: not needed, as the API has none."""
        raise NotImplementedError


def _word(path: str) -> str:
    return path.split("/", _BEFORE + 1)[_BEFORE] if path.count("/") >= _BEFORE else ""

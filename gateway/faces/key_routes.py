"""Routes of what keys have on nodes: volumes, snapshots, archives, and E2B's lists."""

from functools import partial

from aiohttp import web

from gateway.access import ADMINS, E2B_PATH
from gateway.faces.answering import Asked, FaceRoute, answer_list, answer_page, short_body
from gateway.faces.answers import listed
from gateway.faces.archives import Archiving
from gateway.faces.e2b import E2bLists
from gateway.faces.named_lists import (
    ARCHIVES,
    SNAPSHOTS,
    USERS,
    VOLUMES,
    NamedList,
    NamedLists,
)
from gateway.faces.queries import E2bSandboxesQuery, E2bSnapshotsQuery
from gateway.open import Gateway
from paddock.contract.archives import ArchivesQuery
from paddock.contract.requests import NoQuery
from paddock.contract.sign_in import UserListQuery
from paddock.contract.snapshots import SnapshotListQuery
from paddock.contract.volumes import VolumeListQuery


class KeyFaces:
    """Answers them for all nodes."""

    def __init__(self, gateway: Gateway) -> None:
        members, asking = gateway.members, gateway.asking
        self._named = NamedLists(members, asking)
        self._archiving = Archiving(members)
        self._e2b = E2bLists(gateway.directory, members, asking)

    @property
    def routes(self) -> tuple[FaceRoute, ...]:
        """All of them."""
        archives = "/api/audit/archives"
        templates = partial(self._list_e2b, "templateID")
        volumes = partial(self._list_e2b, "volumeID")
        return (
            FaceRoute("GET", "/api/volumes", "list_volumes", self._list_volumes),
            FaceRoute("GET", "/api/snapshots", "list_snapshots", self._list_snapshots),
            FaceRoute("GET", "/api/users", "list_users", self._list_users, ADMINS),
            FaceRoute("GET", archives, "list_archives", self._list_archives, ADMINS),
            FaceRoute("POST", archives, "archive_audit", self._archive, ADMINS),
            FaceRoute("GET", E2B_PATH + "sandboxes", "list_sessions", self._list_sandboxes),
            FaceRoute("GET", E2B_PATH + "v2/sandboxes", "list_sessions", self._list_sandboxes),
            FaceRoute("GET", E2B_PATH + "snapshots", "list_snapshots", self._list_e2b_snapshots),
            FaceRoute("GET", E2B_PATH + "volumes", "list_volumes", volumes),
            FaceRoute("GET", E2B_PATH + "templates", "list_templates", templates),
            FaceRoute("GET", E2B_PATH + "v2/templates", "list_templates", templates),
        )

    async def _list_volumes(self, asked: Asked) -> web.StreamResponse:
        query = asked.query(VolumeListQuery)
        return await self._list_named(asked, VOLUMES, query.cursor, query.limit)

    async def _list_snapshots(self, asked: Asked) -> web.StreamResponse:
        query = asked.query(SnapshotListQuery)
        return await self._list_named(asked, SNAPSHOTS, query.cursor, query.limit)

    async def _list_users(self, asked: Asked) -> web.StreamResponse:
        query = asked.query(UserListQuery)
        return await self._list_named(asked, USERS, query.cursor, query.limit)

    async def _list_archives(self, asked: Asked) -> web.StreamResponse:
        query = asked.query(ArchivesQuery)
        return await self._list_named(asked, ARCHIVES, query.after, query.limit)

    async def _list_named(
        self, asked: Asked, listed: NamedList, cursor: str | None, limit: int
    ) -> web.StreamResponse:
        page = await self._named.page(listed, cursor, limit, asked.parameters, asked.headers)
        return await answer_page(asked.request, page)

    async def _archive(self, asked: Asked) -> web.StreamResponse:
        asked.query(NoQuery)
        run = await self._archiving.run(await short_body(asked), asked.headers)
        return await listed(asked.request, run.pop("items"), run)

    async def _list_sandboxes(self, asked: Asked) -> web.StreamResponse:
        query = asked.query(E2bSandboxesQuery)
        owner = asked.caller.sees_owner
        page = await self._e2b.sandboxes(owner, query, asked.parameters, asked.headers)
        return await answer_list(asked.request, page)

    async def _list_e2b_snapshots(self, asked: Asked) -> web.StreamResponse:
        query = asked.query(E2bSnapshotsQuery)
        page = await self._e2b.snapshots(query, asked.parameters, asked.headers)
        return await answer_list(asked.request, page)

    async def _list_e2b(self, member: str, asked: Asked) -> web.StreamResponse:
        path = asked.request.path
        page = await self._e2b.all_of(path, member, asked.parameters, asked.headers)
        return await answer_list(asked.request, page)

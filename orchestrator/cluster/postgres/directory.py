"""The cluster as gateways see it: read from its database."""

import asyncio
import json
import math
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from orchestrator.cluster import reports
from orchestrator.cluster.base import Summary
from orchestrator.cluster.directory import (
    MOST_SESSIONS,
    Hold,
    ListedSession,
    Node,
    Position,
    SessionFilters,
    SessionsPage,
    Where,
)
from orchestrator.cluster.postgres.connection import DatabaseConnection, Row
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.cluster.postgres.texts import plain

# What `nodes_changed` of the tables says.
_CHANNEL = "paddock_nodes"
# How often nodes renew their leases, with reports.
_REPORTS_SECONDS = 3.0
# News of many nodes come together, as after the database was away.
_GATHER_SECONDS = 0.1
_NODES = """
SELECT name, epoch, state, report, extract(epoch FROM now - renewed)::float8 AS silent,
    extract(epoch FROM until - now)::float8 AS "left",
    until > now AND NOT coalesce((report ->> 'joining')::boolean, false) AS alive
FROM nodes, LATERAL (SELECT clock_timestamp() AS now) clock WHERE state <> 'gone' ORDER BY name
"""
_PLACES = """
SELECT id, node, 'live' AS hold FROM places WHERE id = ANY($1::text[])
UNION ALL SELECT id, node, 'workspace' FROM workspaces WHERE id = ANY($1::text[]) AND NOT volume
UNION ALL SELECT wanted.id, latest.node, 'record' FROM unnest($1::text[]) wanted (id)
    CROSS JOIN LATERAL (
        SELECT node FROM records WHERE id = wanted.id ORDER BY created_at DESC LIMIT 1
    ) latest
"""
# What counts first is last.
_COUNTS_LESS = (Hold.RECORD, Hold.WORKSPACE, Hold.LIVE)
# Rows that one statement examines, and statements for one page: what few sessions have is searched
# for in parts.
_MOST_EXAMINED = 2000
_MOST_LOOKS = 5


class PostgresDirectory:
    """Answers `Directory` from the database."""

    def __init__(self, database: ClusterDatabase) -> None:
        self._database = database

    async def nodes(self) -> Sequence[Node]:
        """As `Directory.nodes`."""

        async def work(connection: DatabaseConnection) -> Sequence[Node]:
            return [_node(row) for row in await connection.fetch(_NODES)]

        return await self._database.statement(work)

    async def following(self) -> AsyncGenerator[Sequence[Node], None]:
        """As `Directory.following`: told by the database, and at the end of the next lease."""
        told = asyncio.Event()
        async with self._database.listening(_CHANNEL, told.set) as connection:
            while True:
                told.clear()
                rows = await connection.fetch(_NODES)
                yield [_node(row) for row in rows]
                left = min((row["left"] for row in rows if row["left"] > 0), default=math.inf)
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, _REPORTS_SECONDS)):
                        await told.wait()
                await asyncio.sleep(_GATHER_SECONDS)

    async def places_of(self, session_ids: Collection[str]) -> Mapping[str, Where]:
        """As `Directory.places_of`."""
        wanted = {name: plain(name).lower() for name in session_ids}

        async def work(connection: DatabaseConnection) -> Sequence[Row]:
            return await connection.fetch(_PLACES, [*wanted.values()])

        places: dict[str, Where] = {}
        rows = await self._database.statement(work)
        for row in sorted(rows, key=lambda each: _COUNTS_LESS.index(each["hold"])):
            places[row["id"]] = Where(row["node"], Hold(row["hold"]))
        return {name: places[known] for name, known in wanted.items() if known in places}

    async def sessions(
        self, owner: str | None, after: Position | None, limit: int, filters: SessionFilters
    ) -> SessionsPage:
        """As `Directory.sessions`. There may be fewer than `limit`, or none, and yet more."""

        async def work(connection: DatabaseConnection) -> SessionsPage:
            most = max(1, min(limit, MOST_SESSIONS))
            found: list[ListedSession] = []
            position = after
            for _ in range(_MOST_LOOKS):
                rows, position = await _look(
                    connection, owner, position, most - len(found), filters
                )
                found += rows
                if position is None or len(found) == most:
                    break
            return SessionsPage(found, position)

        return await self._database.statement(work)


async def _look(
    connection: DatabaseConnection,
    owner: str | None,
    after: Position | None,
    most: int,
    filters: SessionFilters,
) -> tuple[Sequence[ListedSession], Position | None]:
    """Wanted rows among the next ones, and where to go on; None: there are no more."""
    query, values = _query(owner, after, most, filters)
    rows = await connection.fetch(query, *values)
    found = [row for row in rows if row["wanted"]][:most]
    # The last row that was examined is always among the rows, wanted or not.
    last = found[-1] if len(found) == most else rows[-1] if rows else None
    over = not rows or (last is rows[-1] and last["number"] < _MOST_EXAMINED)
    position = None if over or last is None else (last["created_at"], last["session_key"])
    return [_listed(row) for row in found], position


def _query(
    owner: str | None, after: Position | None, most: int, filters: SessionFilters
) -> tuple[str, list[Any]]:
    """Which rows are examined, by an index in their order, and which of them are wanted."""
    values: list[Any] = []

    def value(given: Any) -> str:
        values.append(given)
        return f"${len(values)}"

    rows = ["parent IS NULL"]
    if filters.parent is not None:
        rows = [f"parent = {value(plain(filters.parent).lower())}"]
    if owner is not None:
        rows.append(f"owner = {value(owner)}")
    wanted = ["true"]
    match filters.status:
        case None:
            rows.append(f"(ended_at IS NULL OR ended_at > {value(plain(filters.ended_after))})")
        case "live":
            rows.append("ended_at IS NULL")
        case "ended":
            rows.append("ended_at IS NOT NULL")
        case status:
            wanted.append(f"status = {value(plain(status))}")
    if filters.work_id is not None:
        wanted.append(f"work_id = {value(plain(filters.work_id))}")
    if filters.labels:
        labels = {plain(name): plain(text) for name, text in filters.labels.items()}
        wanted.append(f"labels @> {value(json.dumps(labels))}::jsonb")
    if after is not None:
        sign = ">" if filters.oldest_first else "<"
        created, key = (value(plain(each)) for each in after)
        rows.append(f"(created_at, session_key) {sign} ({created}, {key})")
    order = "ASC" if filters.oldest_first else "DESC"
    query = f"""
        WITH examined AS (
            SELECT *, row_number() OVER () AS number FROM (
                SELECT session_key, session_id, owner, node, created_at, ended_at, status, level,
                    labels, work_id, parent, {" AND ".join(wanted)} AS wanted
                FROM records WHERE {" AND ".join(rows)}
                ORDER BY created_at {order}, session_key {order} LIMIT {_MOST_EXAMINED}
            ) each
        ), last AS (SELECT max(number) AS number FROM examined)
        SELECT examined.* FROM examined, last
        WHERE examined.number = last.number OR examined.number IN (
            SELECT number FROM examined WHERE wanted ORDER BY number LIMIT {value(most)}
        ) ORDER BY examined.number
    """  # noqa: S608 - names are ours
    return query, values


def _node(row: Row) -> Node:
    report = reports.read(json.loads(row["report"]), row["state"])
    return Node(replace(report, name=row["name"], epoch=row["epoch"]), row["alive"], row["silent"])


def _listed(row: Row) -> ListedSession:
    summary = Summary(
        row["status"],
        row["level"],
        row["created_at"],
        json.loads(row["labels"]),
        row["work_id"],
        row["parent"],
    )
    return ListedSession(
        row["session_id"], row["session_key"], row["owner"], row["node"], summary, row["ended_at"]
    )

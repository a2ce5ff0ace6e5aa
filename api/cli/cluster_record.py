"""The copied record of a session, from the cluster's database alone."""

from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.cluster_database import run_now, with_database
from paddock.cli.exits import Failure

if TYPE_CHECKING:
    from orchestrator.cluster.postgres.pool import ClusterDatabase


def record(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")],
    life: Annotated[
        int,
        typer.Option("--life", metavar="N", help="The latest one but so many.", min=0, max=99),
    ] = 0,
) -> None:
    """Write the copied record of a session, one event per line, for `audit verify --file`.

    Only sessions with `recovery: snapshot` and those of levels with `durability = "cluster"` are
    copied. The node that has the session, or has lost it, is not asked.
    """
    from orchestrator.cluster.postgres.shipped import chain, lives
    from orchestrator.record.audit.recorded_event import full_event
    from paddock.audit.chain import canonical

    async def write(database: "ClusterDatabase") -> None:
        keys = await lives(database, session)
        if len(keys) <= life:
            raise Failure(f"the cluster has no copied record of {session}")
        async for event in chain(database, keys[life]):
            print(canonical(full_event(event.body, event.prev_hash, event.hash)))

    run_now(with_database(write))

"""What a gateway consists of, and what is passed between its parts."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from gateway.callers import Callers
from gateway.creation import Creations
from gateway.faces.asking import Asking
from gateway.limits import GATEWAY_LIMITS, GatewayLimits, Open
from gateway.members import Contexts, Members
from gateway.metrics import GatewayMetrics
from gateway.placed import Placements
from gateway.places.holders import Holders
from gateway.routing import Routes
from orchestrator.cluster.directory import Directory
from orchestrator.ground.task_scope import TaskScope
from orchestrator.ground.threads import Aside
from orchestrator.rules.access.keys import KeyRing


@dataclass(frozen=True, slots=True)
class Gateway:
    """An open gateway; `close` ends what it has with nodes. It keeps nothing on disk.

    `callers` are for its own routes, and tell whose a new session is. `domain` is that below which
    ports of sessions have host names; None: they have none.
    """

    directory: Directory
    callers: Callers
    limits: GatewayLimits
    domain: str | None
    members: Members
    routes: Routes
    placements: Placements
    creations: Creations
    asking: Asking
    holders: Holders
    open_requests: Open
    aside: Aside
    metrics: GatewayMetrics
    closers: AsyncExitStack

    async def close(self) -> None:
        """Ends it."""
        await self.closers.aclose()


async def open_gateway(
    directory: Directory,
    keys: KeyRing,
    contexts: Contexts,
    *,
    limits: GatewayLimits = GATEWAY_LIMITS,
    domain: str | None = None,
    asking: Asking | None = None,
) -> Gateway:
    """Opens it, and asks once for the nodes; they are followed from then on.

    The database may be away: the gateway answers then as soon as it is there.
    """
    closers = AsyncExitStack()
    placements = Placements()
    members = Members(directory, contexts, placements.reported)
    asking = asking or Asking()
    holders = Holders(members, asking)
    closers.push_async_callback(members.close)
    routes = Routes(directory, members)
    closers.push_async_callback(routes.close)
    await members.refresh()
    following = TaskScope("following the nodes")
    closers.push_async_callback(following.close)
    following.spawn(members.follow())
    metrics = GatewayMetrics()
    open_requests = Open(limits, keys)
    metrics.gauge(
        "paddock_gateway_open_requests",
        "Requests, streams and WebSockets that are open.",
        lambda: open_requests.total,
    )
    metrics.gauge(
        "paddock_gateway_nodes_alive",
        "Nodes whose lease holds.",
        lambda: sum(each.alive for each in members.all),
    )
    metrics.gauge(
        "paddock_gateway_places", "Sessions whose nodes are remembered.", lambda: len(routes)
    )
    metrics.gauge(
        "paddock_gateway_database_away",
        "1: the cluster's database does not answer.",
        lambda: members.trouble is not None,
    )
    return Gateway(
        directory,
        Callers(keys, members),
        limits,
        domain,
        members,
        routes,
        placements,
        Creations(members, routes, placements, holders),
        asking,
        holders,
        open_requests,
        Aside(),
        metrics,
        closers,
    )

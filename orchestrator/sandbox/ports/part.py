"""The way to a sandbox's ports, as a part of the sandbox."""

from functools import partial

from orchestrator.host.engine.base import Container
from orchestrator.host.node.base import Node
from orchestrator.sandbox.ports.limits import PortLimits
from orchestrator.sandbox.ports.tunnels import Tunnels
from orchestrator.sandbox.sandboxes.parts import Part, Plan


class PortsPart(Part):
    """The connections to its ports; the socket is opened at the first use."""

    name = "ports"

    def __init__(self, node: Node, limits: PortLimits) -> None:
        self._node = node
        self._limits = limits

    async def open(self, plan: Plan) -> None:
        """Opens nothing yet."""
        listen = partial(self._node.listen_for_ports, plan.directory.ports)
        plan.tunnels = Tunnels(listen, partial(plan.link.request, "ports", {}), self._limits)

    async def adopt(self, plan: Plan, container: Container) -> None:
        """The sandbox connects again at the first use."""
        await self.open(plan)

    async def leave(self, plan: Plan) -> None:
        """Ends the connections; the sandbox keeps running."""
        await self.close(plan)

    async def close(self, plan: Plan) -> None:
        """Ends all connections."""
        if plan.tunnels is not None:
            await plan.tunnels.close()

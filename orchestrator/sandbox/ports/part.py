"""The way to a sandbox's ports, as a part of the sandbox."""

from functools import partial

from orchestrator.ground.errors import SandboxUnavailableError
from orchestrator.host.engine.base import Container
from orchestrator.host.node.base import Node
from orchestrator.sandbox.ports.limits import PortLimits
from orchestrator.sandbox.ports.tunnels import Tunnels
from orchestrator.sandbox.sandboxes.parts import Part, Plan
from orchestrator.state.sandbox import Sandbox


class PortsPart(Part):
    """The connections to its ports; the socket is opened at the first use."""

    name = "ports"

    def __init__(self, node: Node, limits: PortLimits) -> None:
        self._node = node
        self._limits = limits
        # By the sandboxes' names.
        self._tunnels: dict[str, Tunnels] = {}

    async def open(self, plan: Plan) -> None:
        """Opens nothing yet."""
        listen = partial(self._node.listen_for_ports, plan.directory.ports)
        ask = partial(plan.link.request, "ports", {})
        tunnels = self._tunnels[plan.name] = Tunnels(listen, ask, self._limits)
        plan.ways.append(tunnels)

    async def adopt(self, plan: Plan, container: Container) -> None:
        """The sandbox connects again at the first use."""
        await self.open(plan)

    async def leave(self, plan: Plan) -> None:
        """Ends the connections; the sandbox keeps running."""
        await self.close(plan)

    async def close(self, plan: Plan) -> None:
        """Ends all connections."""
        if (tunnels := self._tunnels.pop(plan.name, None)) is not None:
            await tunnels.close()

    def tunnels(self, sandbox: Sandbox) -> Tunnels:
        """The connections of that sandbox. Raises: SandboxUnavailableError."""
        if (tunnels := self._tunnels.get(sandbox.name)) is None:
            raise SandboxUnavailableError("the session's sandbox has no ports")
        return tunnels

"""The way out, as a part of a sandbox."""

from orchestrator.ground.counts import Counts
from orchestrator.ground.loop_slots import LoopSlots
from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.node.base import Node
from orchestrator.record.audit.budgets import Budgets
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.secrets.proxy_secrets import ProxySecrets
from orchestrator.rules.egress.limits import EGRESS_LIMITS, EgressLimits
from orchestrator.sandbox.egress.egress_listener import EgressListener, Proxy
from orchestrator.sandbox.egress.interception import Interception
from orchestrator.sandbox.egress.key_bytes import KeyBytes
from orchestrator.sandbox.egress.resolver import Resolver
from orchestrator.sandbox.sandboxes.parts import HeldPart, Plan
from orchestrator.state.sandbox import Sandbox
from orchestrator.state.session import Session
from paddock.contract.words import Kind


class EgressPart(HeldPart):
    """The listener of the way out, if the level has one; it is opened for a known session."""

    name = "way out"

    def __init__(
        self,
        node: Node,
        recorder: Recorder,
        budgets: Budgets,
        resolver: Resolver,
        interception: Interception,
        secrets: ProxySecrets,
        key_bytes: KeyBytes,
        limits: EgressLimits = EGRESS_LIMITS,
    ) -> None:
        self._node = node
        self._budgets = budgets
        shares = Counts[str](limits.key_connections)
        self._proxy = Proxy(
            *(recorder, resolver, interception, secrets, key_bytes, limits, shares, LoopSlots())
        )
        # The keys are the sandboxes' names.
        self._listeners: dict[str, EgressListener] = {}
        self._ends = TaskScope("the end of a session without budget")

    async def open(self, plan: Plan) -> None:
        """Raises: OSError."""
        if plan.level.network != "egress":
            return
        bound = self._node.listen_for_egress(plan.directory.egress)
        listener = EgressListener(plan.session, plan.name, self._proxy, self._spent)
        self._listeners[plan.name] = listener
        plan.ways.append(listener)
        listener.open(bound)

    async def close(self, plan: Plan) -> None:
        """Ends all connections."""
        if (listener := self._listeners.pop(plan.name, None)) is not None:
            await listener.close()

    async def settle(self, sandbox: Sandbox) -> None:
        """Ends a sandbox's connections, and returns when that is recorded."""
        if (listener := self._listeners.get(sandbox.name)) is not None:
            await listener.settled()

    async def shut_down(self) -> None:
        """Waits for sessions that are being ended."""
        await self._ends.drain()

    def _spent(self, session: Session) -> None:
        if session.budget.exceeded is None and Kind.EGRESS_BYTES in session.budget.limits:
            self._budgets.exceed(session, Kind.EGRESS_BYTES, "system")
            self._ends.spawn(self._budgets.end(session))

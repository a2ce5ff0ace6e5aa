"""The socket by which one session's sandbox reaches the proxy, and its connections."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import aclosing, contextmanager
from functools import partial
from typing import NamedTuple

from orchestrator.ground.accepted_connections import accepted_connections
from orchestrator.ground.counts import Counts
from orchestrator.ground.errors import SandboxUnavailableError
from orchestrator.ground.fair_share import Pace
from orchestrator.ground.loop_slots import LoopSlots
from orchestrator.ground.task_scope import TaskScope
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.secrets.proxy_secrets import ProxySecrets
from orchestrator.rules.egress.limits import EgressLimits
from orchestrator.rules.egress.outgoing_request import Outgoing, program_of
from orchestrator.rules.egress.rules import Decision
from orchestrator.sandbox.egress.evidence import ConnectionEvidence
from orchestrator.sandbox.egress.exchange import EgressExchange
from orchestrator.sandbox.egress.interception import Interception
from orchestrator.sandbox.egress.key_bytes import KeyBytes
from orchestrator.sandbox.egress.meter import Meter, SpentError
from orchestrator.sandbox.egress.resolver import Resolver
from orchestrator.sandbox.egress.stream import accepted
from orchestrator.settings.hosts import Address, Host
from orchestrator.state.session import Session


class Proxy(NamedTuple):
    """What serves the connections of all sessions."""

    recorder: Recorder
    resolver: Resolver
    interception: Interception
    secrets: ProxySecrets
    key_bytes: KeyBytes
    limits: EgressLimits
    shares: Counts[str]
    slots: LoopSlots


class LiveRules:
    """A change of the session's rules holds from its next decision on.

    Nothing is allowed if the session's key has no bytes left.
    """

    def __init__(self, session: Session, key_bytes: KeyBytes) -> None:
        self._session = session
        self._key_bytes = key_bytes

    def decide(self, outgoing: Outgoing) -> Decision:
        """See `Rules.decide`."""
        decision = self._session.egress_rules.decide(outgoing)
        return self._key_bytes.decided(self._session.owner, decision)

    def decide_address(self, address: Address, port: int) -> Decision:
        """See `Rules.decide_address`."""
        return self._session.egress_rules.decide_address(address, port)

    def upgraded(self, host: Host, port: int) -> int | None:
        """See `Rules.upgraded`."""
        return self._session.egress_rules.upgraded(host, port)


class EgressListener:
    """Only the session connects here, because only its sandbox has the socket.

    `shut` ends all connections and refuses requests until `reopen`.
    """

    def __init__(
        self,
        session: Session,
        sandbox: str,
        proxy: Proxy,
        on_spent: Callable[[Session], None],
    ) -> None:
        """`sandbox` is the sandbox's name. `on_spent` ends a session with no budget left."""
        self._session = session
        self._sandbox = sandbox
        self._proxy = proxy
        self._limits = proxy.limits
        self._on_spent = on_spent
        self._evidence = ConnectionEvidence(proxy.recorder, session, proxy.key_bytes)
        self._pace = Pace(proxy.limits.pace_seconds, proxy.limits.burst)
        self._accepting = TaskScope("the way out of a sandbox")
        self._exchanges = TaskScope("a connection of a sandbox")
        self._records = TaskScope("the record of a sandbox's connection")
        self._served: dict[EgressExchange, asyncio.Task[None]] = {}
        self._shut = False
        self._ignore_key = proxy.key_bytes.on_spent(session.owner, self.recheck)

    def open(self, listener: socket.socket) -> None:
        """Serves connections to the socket, which it closes in the end."""
        self._accepting.spawn(self._accept(listener))

    def shut(self) -> None:
        """Ends all connections at once; requests are refused from now on."""
        self._shut = True
        self._exchanges.cancel()

    def recheck(self) -> None:
        """Ends the connections that the session's rules or its key do not allow any more."""
        for exchange, task in self._served.items():
            if not exchange.allowed():
                task.cancel()

    def reopen(self) -> None:
        """Requests are decided again."""
        self._shut = False

    async def settled(self) -> None:
        """Ends all connections, and returns when their ends are recorded as far as possible."""
        self.shut()
        await self._exchanges.close()
        await self._records.drain()

    async def close(self) -> None:
        """Closes the socket and all connections."""
        self._ignore_key()
        await self._accepting.close()
        await self.settled()

    async def _accept(self, listener: socket.socket) -> None:
        most = self._limits.connections
        async with aclosing(
            accepted_connections(listener, self._pace, self._exchanges, most)
        ) as connections:
            async for connection, address in connections:
                self._exchanges.spawn(self._serve(connection, program_of(address)))

    async def _serve(self, connection: socket.socket, program: str) -> None:
        with connection, self._proxy.shares.taken(self._session.owner) as admitted:
            if not admitted:
                return
            session, proxy = self._session, self._proxy
            meter = Meter(
                session.budget,
                proxy.key_bytes,
                session.owner,
                session.egress_usage,
                self._limits.transfer_bytes,
            )
            exchange = EgressExchange(
                await accepted(connection, self._limits.head_bytes),
                LiveRules(session, proxy.key_bytes),
                proxy.resolver,
                proxy.interception,
                self._evidence,
                meter,
                self._limits,
                self._admit,
                partial(proxy.secrets.fill, session),
                self._records,
                self._slot,
                program,
            )
            try:
                with self._rechecked(exchange):
                    await exchange.run()
            except SpentError:
                self.shut()
                self._on_spent(self._session)

    async def _slot(self) -> None:
        """Returns when a connection may pass its next bytes on, and its key has some."""
        session, proxy = self._session, self._proxy
        await proxy.slots.next(session.key)
        await proxy.key_bytes.ready(session.owner)

    @contextmanager
    def _rechecked(self, exchange: EgressExchange) -> Iterator[None]:
        """Lets `recheck` end the present task meanwhile."""
        task = asyncio.current_task()
        if task is not None:
            self._served[exchange] = task
        try:
            yield
        finally:
            self._served.pop(exchange, None)

    def _admit(self) -> None:
        """Raises: SandboxUnavailableError, the errors of `Session.check_open`."""
        sandbox = self._session.check_open()
        if self._shut or sandbox.name != self._sandbox or sandbox.freezing is not None:
            raise SandboxUnavailableError("the session is being stopped or changed")

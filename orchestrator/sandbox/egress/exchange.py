"""One connection of a sandbox: a request, the decision, and the record of its transfer."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from http import HTTPStatus

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.task_scope import TaskScope
from orchestrator.record.secrets.request_head import RequestHead, parse_head
from orchestrator.rules.egress.limits import EgressLimits
from orchestrator.rules.egress.outgoing_request import UNKNOWN
from orchestrator.rules.egress.rules import TLS_REFUSED, Decider, Decision
from orchestrator.sandbox.egress import answers
from orchestrator.sandbox.egress.answers import RefusedError
from orchestrator.sandbox.egress.client_hello import HelloError
from orchestrator.sandbox.egress.client_presence import ClientGoneError, while_present
from orchestrator.sandbox.egress.client_requests import (
    begins_in_clear,
    first_message,
    read_head,
    read_request,
)
from orchestrator.sandbox.egress.evidence import ConnectionEnd, ConnectionEvidence
from orchestrator.sandbox.egress.interception import Interception
from orchestrator.sandbox.egress.meter import Meter, SpentError
from orchestrator.sandbox.egress.relay import Relay
from orchestrator.sandbox.egress.request_body import BodyError
from orchestrator.sandbox.egress.resolver import LookupFailedError, Resolver
from orchestrator.sandbox.egress.stream import Stream
from orchestrator.sandbox.egress.upstream import UnreachedError, dial
from orchestrator.settings.hosts import Address

# After an answer, what the client still sends is read for so long, so that it sees the answer.
_LINGER_SECONDS = 1.0


# How a tunnel ends that is not used as one.
IN_CLEAR = "it had a request without TLS, which is decided by itself"


class EgressExchange:
    """Serves one connection; `run` returns when it is over."""

    def __init__(
        self,
        client: Stream,
        rules: Decider,
        resolver: Resolver,
        interception: Interception,
        evidence: ConnectionEvidence,
        meter: Meter,
        limits: EgressLimits,
        admit: Callable[[], None],
        fill: Callable[[RequestHead], RequestHead],
        records: TaskScope,
        slot: Callable[[], Awaitable[None]],
        program: str = UNKNOWN,
    ) -> None:
        """`admit` raises a PaddockError if the session may not reach anything now.

        `fill` puts secrets into a request's head. `records` has the records of ends, which are
        written even if the exchange is cancelled. `slot` returns when this connection may pass its
        next bytes on. `program` has the connection, in the sandbox.
        """
        self._client = client
        self._rules = rules
        self._resolver = resolver
        self._interception = interception
        self._evidence = evidence
        self._meter = meter
        self._limits = limits
        self._admit = admit
        self._fill = fill
        self._records = records
        self._slot = slot
        self._program = program
        self._connected: Address | None = None
        # The request that came through its tunnel without TLS.
        self._in_clear: RequestHead | None = None
        # Its request and the addresses of the host, once they are known.
        self._head: RequestHead | None = None
        self._found: tuple[Address, ...] = ()

    def allowed(self) -> bool:
        """Whether the rules still allow its request."""
        head, rules = self._head, self._rules
        if head is None:
            return True
        if not head.secure and self._upgraded(head).secure:
            return False
        addresses = (self._resolver.decide(rules, address, head.port) for address in self._found)
        decision = self._rules.decide(head.outgoing)
        # An open tunnel can't be inspected any more.
        allowed = decision.allow and not decision.inspect
        return allowed and all(each.allow for each in addresses)

    async def run(self) -> None:
        """Raises: SpentError if the session's budget is used up."""
        try:
            with suppress(OSError):  # the client is gone
                await self._serve()
        finally:
            self._client.abort()

    async def _serve(self) -> None:
        try:
            received = await read_head(self._client, self._limits, parse_head)
            await self._carry_out(received)
            if self._in_clear is not None:
                await self._carry_out(self._in_clear)
        except RefusedError as refused:
            await self._answer(refused.answer)

    async def _carry_out(self, received: RequestHead) -> None:
        """Raises: RefusedError, OSError, SpentError."""
        await self._slot()
        head = self._head = self._upgraded(received._replace(program=self._program))
        decision = self._rules.decide(head.outgoing)
        if decision.inspect:
            head = self._head = await self._inside(head)
            decision = self._rules.decide(head.outgoing)
        addresses = self._found = await self._addresses(head, decision)
        head = self._fill(head)
        connection_id = await self._begin(head, decision, addresses)
        await self._recorded_transfer(head, addresses, connection_id)

    def _upgraded(self, head: RequestHead) -> RequestHead:
        """The request as it goes out: in TLS, if a rule says so. From here on it has that port."""
        port = None if head.connect else self._rules.upgraded(head.host, head.port)
        return head if port is None else head.in_tls(port)

    async def _inside(self, tunnel: RequestHead) -> RequestHead:
        """Takes the host's place in the tunnel; the client is answered in TLS from then on.

        Raises: RefusedError, OSError if there is no TLS, which is on record.
        """
        host = str(tunnel.host)
        try:
            self._admit()
            try:
                await self._client.write(answers.ESTABLISHED)
                if await begins_in_clear(self._client, self._limits):
                    return self._upgraded(await self._request(tunnel, secure=False))
                async with asyncio.timeout(self._limits.head_seconds):
                    first = await first_message(self._client, self._limits, tunnel)
                    self._client = await self._interception.accept(self._client, first, host)
            except (HelloError, OSError) as error:
                why = f"TLS with the client failed: {error}"
                await self._evidence.denied(tunnel, Decision(False, TLS_REFUSED, why))
                raise ConnectionResetError from None
        except PaddockError as error:
            raise RefusedError.unavailable(error) from None
        return await self._request(tunnel, secure=True)

    async def _request(self, tunnel: RequestHead, *, secure: bool) -> RequestHead:
        return await read_request(self._client, self._limits, tunnel, secure=secure)

    async def _addresses(self, head: RequestHead, decision: Decision) -> tuple[Address, ...]:
        """The addresses to connect to, if the request is allowed. Raises: RefusedError."""
        try:
            self._admit()
            if not decision.allow:
                raise await self._denied(head, decision)
            found = await self._resolver.find(self._rules, head.host, head.port)
            if found.denied is not None:
                raise await self._denied(head, found.denied)
        except LookupFailedError as error:
            raise RefusedError.with_text(HTTPStatus.BAD_GATEWAY, f"{error}.") from None
        except PaddockError as error:
            raise RefusedError.unavailable(error) from None
        return found.addresses

    async def _denied(self, head: RequestHead, decision: Decision) -> RefusedError:
        """The refusal, once it is on record. Raises: PaddockError."""
        await self._evidence.denied(head, decision)
        return RefusedError(answers.denied(decision))

    async def _begin(
        self, head: RequestHead, decision: Decision, addresses: tuple[Address, ...]
    ) -> str:
        """Records that a connection will be made. Raises: RefusedError."""
        try:
            self._admit()
            recording = self._evidence.allowed(head, decision, addresses)
            return await self._records.shield(recording, lambda id_: self._cut(head, id_))
        except PaddockError as error:
            raise RefusedError.unavailable(error) from None

    def _cut(self, head: RequestHead, connection_id: str) -> None:
        """Records the end of a request that was cut while it was being recorded."""
        ended = ConnectionEnd(0, 0, 0, error="cut")
        self._records.spawn(self._evidence.closed(head, connection_id, ended))

    async def _recorded_transfer(
        self, head: RequestHead, addresses: tuple[Address, ...], connection_id: str
    ) -> None:
        loop = asyncio.get_running_loop()
        began, error = loop.time(), "cut"
        try:
            error = await self._transfer(head, addresses)
        except RefusedError:
            error = IN_CLEAR
            raise
        except SpentError as spent:
            error = str(spent)
            if spent.budget:
                raise
        except OSError as failed:
            error = f"lost: {type(failed).__name__}"
        except asyncio.CancelledError:
            error = str(self._meter.spent or "cut")
            raise
        finally:
            ended = ConnectionEnd(
                self._meter.sent,
                self._meter.received,
                int((loop.time() - began) * 1000),
                self._connected,
                error or None,
            )
            self._records.spawn(self._evidence.closed(head, connection_id, ended))

    async def _transfer(self, head: RequestHead, addresses: tuple[Address, ...]) -> str:
        """Returns why it ended; empty: the upstream has ended it. Raises: OSError, SpentError."""
        await self._slot()
        try:
            with ExitStack() as owned:
                async with while_present(self._client):
                    upstream, self._connected = await dial(
                        addresses, head, self._interception, self._limits.connect_seconds
                    )
                    owned.callback(upstream.abort)
                self._admit()  # it may have been paused or ended meanwhile
                return await self._relay(head, upstream)
        except UnreachedError as error:
            self._connected = error.address
            await self._answer(answers.answer(HTTPStatus.BAD_GATEWAY, str(error)))
            return str(error)
        except PaddockError as error:
            return error.detail
        except (HelloError, BodyError) as error:
            return f"refused: {error}"
        except ClientGoneError:
            return "the client has gone"
        except TimeoutError:
            return "nothing was sent for too long"

    async def _relay(self, head: RequestHead, upstream: Stream) -> str:
        """Raises: OSError, SpentError, HelloError, BodyError, TimeoutError, ClientGoneError."""
        first = head.upstream()
        if head.connect:
            await self._client.write(answers.ESTABLISHED)
            if await begins_in_clear(self._client, self._limits):
                self._in_clear = await self._request(head, secure=False)
                return IN_CLEAR
            first = await first_message(self._client, self._limits, head)
        relay = Relay(self._client, upstream, self._meter, self._limits.idle_seconds, self._slot)
        await relay.run(head, first)
        await self._end_client()
        return ""

    async def _answer(self, answer: bytes) -> None:
        await self._client.write(answer)
        await self._end_client()

    async def _end_client(self) -> None:
        """Lets the client read the rest, and see a proper end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_SECONDS):
                await self._client.flush()
                self._client.finish()
                while await self._client.read():
                    pass

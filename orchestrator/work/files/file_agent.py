"""A session's agent as the file operations of one caller use it."""

from orchestrator.host.link.agent_link import AgentLink
from orchestrator.host.link.ask_tokens import ASKER
from sandbox_agent.decide.protocol import Message


class FileAgent:
    """Tells the agent who asks, so that its events say so."""

    def __init__(self, link: AgentLink, asker: str) -> None:
        """`asker` is a token of `AskTokens`."""
        self._link = link
        self._asker = {ASKER: asker}

    async def ask(self, method: str, params: Message) -> Message:
        """The answer to a request that begins an operation. Raises: as `AgentLink.request`."""
        return await self._link.request(method, {**params, **self._asker})

    async def request(self, method: str, params: Message) -> Message:
        """The answer to a request about an open stream. Raises: as `AgentLink.request`."""
        return await self._link.request(method, params)

    async def settled(self) -> None:
        """See `AgentLink`."""
        await self._link.settled()

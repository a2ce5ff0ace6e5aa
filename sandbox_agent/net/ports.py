"""The agent's side of ports: the process that connects to them, started at the first use.

Like the forwarder, it is the agent's child, so it does not stall the agent's loop. It has a uid of
its own, so no command can signal it, trace it, or open its socket.
"""

import os

from sandbox_agent.core.loop import Loop
from sandbox_agent.core.outputs import Reply
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.protocol import Message
from sandbox_agent.enforce.kernel import Kernel
from sandbox_agent.net import ports_process


class Ports:
    """Starts the process when the control plane asks. It ends when the control plane is gone."""

    def __init__(self, loop: Loop, kernel: Kernel) -> None:
        self._loop = loop
        self._kernel = kernel
        self._runs = False

    def start(self, _params: Message, reply: Reply) -> None:
        """Starts it unless it runs. Raises: AgentError."""
        if not self._runs:
            try:
                pid = os.fork()
            except OSError:
                raise AgentError("busy", "there is no room for another process") from None
            if pid == 0:
                ports_process.run(self._kernel)
            self._runs = True
            self._loop.on_exit(pid, self._ended)
        reply({})

    def _ended(self) -> None:
        self._runs = False

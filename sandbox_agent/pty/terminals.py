"""Opens, feeds, reads and ends the terminals of one sandbox."""

import functools
from collections import OrderedDict

from sandbox_agent.core import params as given
from sandbox_agent.core.audit import EventBuffer
from sandbox_agent.core.loop import Loop
from sandbox_agent.core.outputs import Reply
from sandbox_agent.core.proxy_variables import proxy_variables
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.protocol import Configuration, Message
from sandbox_agent.enforce.guards.guards import Guards
from sandbox_agent.enforce.kernel import Kernel
from sandbox_agent.enforce.profile import ConfinementError
from sandbox_agent.pty.kept_shell import KeptShell
from sandbox_agent.pty.prompt_detector import PromptDetector
from sandbox_agent.pty.request import LARGEST_SIDE, parse
from sandbox_agent.pty.terminal import Terminal
from sandbox_agent.run.session_secrets import SessionSecrets
from sandbox_agent.run.work import Work

# For how long the last output of an ended terminal stays readable, and for how many terminals.
_KEPT_SECONDS = 30.0
_KEPT_TERMINALS = 16


class Terminals:
    """The terminals of one sandbox."""

    def __init__(
        self,
        loop: Loop,
        configuration: Configuration,
        kernel: Kernel,
        events: EventBuffer,
        work: Work,
        guards: Guards,
        secrets: SessionSecrets,
    ) -> None:
        self._loop = loop
        self._configuration = configuration
        self._secrets = secrets
        # Without Landlock, other commands could look into a tool.
        self._exposed = not kernel.paths
        self._events = events
        self._work = work
        self._guards = guards
        self._prompts = PromptDetector(configuration.uid)
        self._running: dict[str, Terminal] = {}
        self._ended: OrderedDict[str, Terminal] = OrderedDict()

    @property
    def running(self) -> list[str]:
        """Ids of the terminals whose program still runs."""
        return list(self._running)

    def open(self, params: Message, reply: Reply) -> None:
        """Starts a program on its own terminal. Raises: AgentError, ValueError."""
        sandbox = self._variables(params.get("commands") is None)
        request = parse(params, sandbox, self._configuration.workspace)
        if request.commands is None and self._configuration.commands is not None:
            message = f"the level {self._configuration.level} permits no shell"
            raise AgentError("permission_denied", message, "shell-level")
        if self._exposed:
            message = "terminals at this level need a kernel with Landlock (Linux 5.13)"
            raise AgentError("conflict", message)
        self._work.check(request.terminal_id)
        self._work.remember(request.terminal_id)
        try:
            guard = self._guards.take_for(request.tool, request.plan)
            made = KeptShell if request.kept else Terminal
            terminal = made(
                self._loop, guard, request, self._prompts, self._work.printed, self._end
            )
        except ConfinementError as error:
            raise AgentError("conflict", f"the tool can't be confined: {error}") from None
        except OSError as error:
            raise AgentError("busy", f"no room for another terminal: {error.strerror}") from None
        self._running[terminal.id] = terminal
        self._work.begin(terminal)
        reply({})

    def _variables(self, shell: bool) -> dict[str, str]:
        """The sandbox's variables for a terminal; a shell also has those that commands have."""
        configuration = self._configuration
        proxy = proxy_variables(configuration.egress)
        if not shell:
            return proxy
        return {
            "HOME": configuration.home,
            **proxy,
            **configuration.variables,
            **self._secrets.variables(configuration.environment),
        }

    def write(self, params: Message, reply: Reply) -> None:
        """Writes bytes as they are; answers once the kernel has taken them. Raises: AgentError."""
        self._terminal(params).write(given.data(params, "data"), reply)

    def run(self, params: Message, reply: Reply) -> None:
        """Runs a command in a kept shell. Raises: AgentError."""
        number = given.number(params, "number", 1)
        self._kept_shell(params).run(number, given.text(params, "text"))
        reply({})

    def interrupt(self, params: Message, reply: Reply) -> None:
        """Interrupts a kept shell's command, or kills its foreground. Raises: AgentError."""
        shell, number = self._kept_shell(params), given.number(params, "number", 1)
        reply({"reached": shell.interrupt(number, kill=given.flag(params, "kill"))})

    def _kept_shell(self, params: Message) -> KeptShell:
        terminal = self._terminal(params)
        if not isinstance(terminal, KeptShell):
            raise AgentError("conflict", "this terminal runs no commands")
        return terminal

    def resize(self, params: Message, reply: Reply) -> None:
        """Gives a terminal another size. Raises: AgentError."""
        rows = given.number(params, "rows", 1, LARGEST_SIDE)
        self._terminal(params).resize(rows, given.number(params, "cols", 1, LARGEST_SIDE))
        reply({})

    def send(self, params: Message, reply: Reply) -> None:
        """Writes one line. Raises: AgentError."""
        terminal = self._terminal(params)
        command, text = given.text(params, "command"), given.text(params, "text")
        reply({"mark": terminal.send(command, text, given.contents(params, "files"))})

    def read(self, params: Message, reply: Reply) -> None:
        """Answers with output; waits until there is some. Raises: AgentError."""
        terminal_id = given.text(params, "terminal_id")
        terminal = self._running.get(terminal_id) or self._ended.get(terminal_id)
        if terminal is None:
            raise AgentError("not_found", f"there is no terminal {terminal_id}")
        terminal.read(params, reply)
        if terminal.all_read:
            self._forget(terminal_id)

    def signal(self, params: Message, reply: Reply) -> None:
        """Signals the program's process group. Raises: AgentError."""
        number = given.number(params, "signal", 1, given.LAST_SIGNAL)
        if not self._terminal(params).signal(number):
            raise AgentError(
                "busy", "earlier signals to this terminal are still pending: try again"
            )
        reply({})

    def close(self, params: Message, reply: Reply) -> None:
        """Ends a terminal and its whole tree; a terminal that has already ended is no error."""
        terminal = self._running.get(given.text(params, "terminal_id"))
        reason = given.text(params, "reason")
        if terminal is not None:
            terminal.cancel(reason)
        reply({})

    def forget_callers(self) -> None:
        """Drops all callers that wait, after the connection was lost."""
        for terminal in self._running.values():
            terminal.forget_callers()

    def _terminal(self, params: Message) -> Terminal:
        terminal_id = given.text(params, "terminal_id")
        terminal = self._running.get(terminal_id)
        if terminal is None:
            raise AgentError("not_found", f"terminal {terminal_id} does not run")
        return terminal

    def _forget(self, terminal_id: str) -> None:
        self._ended.pop(terminal_id, None)

    def _end(self, terminal: Terminal) -> None:
        del self._running[terminal.id]
        terminal.tree.guard.close()
        result = terminal.result()
        self._events.emit(
            "pty.exit",
            decision=None,
            rule=None,
            command_id=None,
            args={"terminal_id": terminal.id},
            result={**result, **self._work.totals()},
            error=terminal.tree.failure,
            duration_ms=result["duration_us"] // 1000,
        )
        self._ended[terminal.id] = terminal
        if len(self._ended) > _KEPT_TERMINALS:
            self._ended.popitem(last=False)
        self._loop.after(_KEPT_SECONDS, functools.partial(self._forget, terminal.id))
        terminal.end({name: result[name] for name in ("exit_code", "signal", "reason")})
        self._work.end(terminal)

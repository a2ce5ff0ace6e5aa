"""What an agent does for its session once it is configured: commands, terminals and files."""

import functools
from collections.abc import Callable

from sandbox_agent.core.audit import EventBuffer
from sandbox_agent.core.loop import Loop
from sandbox_agent.core.outputs import Reply
from sandbox_agent.decide import digest
from sandbox_agent.decide.protocol import Configuration, Message
from sandbox_agent.enforce import standstill
from sandbox_agent.enforce.guards.forked import WaitingGuard
from sandbox_agent.enforce.guards.guards import Guards
from sandbox_agent.enforce.kernel import Kernel
from sandbox_agent.enforce.libraries import Libraries
from sandbox_agent.files import operations
from sandbox_agent.files.transfers import Transfers
from sandbox_agent.net.forwarder import Forwarder
from sandbox_agent.net.ports import Ports
from sandbox_agent.pty.terminals import Terminals
from sandbox_agent.run.executor import Executor
from sandbox_agent.run.session_secrets import SessionSecrets
from sandbox_agent.run.vouching import Vouching
from sandbox_agent.run.work import Work

# So long after its configuration, a session's first command has come.
_CALM_SECONDS = 1.0


class Session:
    """Everything that depends on the session."""

    def __init__(
        self,
        loop: Loop,
        configuration: Configuration,
        kernel: Kernel,
        events: EventBuffer,
        secrets: SessionSecrets,
        programs: Libraries | None = None,
        waiting: WaitingGuard | None = None,
    ) -> None:
        """`programs` is what the level's commands need, if it is known.

        `waiting` may have a guard that was forked ahead.

        Raises: BudgetError; ConfinementError if commands can't be confined; OSError if there is no
        way out.
        """
        self._loop = loop
        self._forwarder = (
            Forwarder(loop, kernel, configuration.uid) if configuration.egress else None
        )
        self.guards = Guards(loop, configuration, kernel, events, programs, waiting)
        self.work = Work(loop, configuration, events)
        self._executor = Executor(loop, configuration, events, self.work, self.guards, secrets)
        self._terminals = Terminals(
            loop, configuration, kernel, events, self.work, self.guards, secrets
        )
        self._transfers = Transfers(loop, configuration, events, secrets.cut)
        self._ports = Ports(loop, kernel)
        self._vouching = Vouching(
            loop, functools.partial(standstill.everything_stopped, configuration.uid)
        )
        self.methods: dict[str, Callable[[Message, Reply], None]] = {
            "exec": self._executor.execute,
            "output": self._executor.outputs.read,
            "output.restore": self._executor.restore,
            "stdin": self._executor.stdin,
            "signal": self._executor.signal,
            "cancel": self._executor.cancel,
            "programs": self._executor.absent,
            "pty.open": self._terminals.open,
            "pty.send": self._terminals.send,
            "pty.write": self._terminals.write,
            "pty.run": self._terminals.run,
            "pty.interrupt": self._terminals.interrupt,
            "pty.resize": self._terminals.resize,
            "pty.read": self._terminals.read,
            "pty.signal": self._terminals.signal,
            "pty.close": self._terminals.close,
            "ports": self._ports.start,
            "vouch": self._vouching.vouch,
            "file.open": self._transfers.open,
            "file.digest": functools.partial(self._transfers.digest, self.guards.held),
            "file.changes": self._transfers.changes,
            "file.pull": self._transfers.pull,
            "file.push": self._transfers.push,
            "file.close": self._transfers.close,
        }
        # The messages that get no answer.
        self.notices: dict[str, Callable[[Message], None]] = {
            "go": self._executor.go,
            "drop": self._executor.drop,
        }
        for name in operations.NAMES:
            self.methods[f"file.{name}"] = functools.partial(self._transfers.operate, name)

    def recover(self, done: Callable[[], None]) -> None:
        """Completes what an earlier sandbox has left unfinished in the workspace."""
        self._transfers.recover(done)

    def prepare(self) -> None:
        """Opens the way out, if there is one, and has the first guard there in advance."""
        if self._forwarder is not None:
            self._forwarder.start()
        self.guards.prepare()
        self._loop.after(_CALM_SECONDS, digest.load)

    @property
    def running(self) -> list[str]:
        """The commands that run."""
        return self._executor.running

    @property
    def finished(self) -> list[str]:
        """The commands that have ended and whose output is kept."""
        return self._executor.outputs.ended

    @property
    def terminals(self) -> list[str]:
        """The terminals that run."""
        return self._terminals.running

    def forget_callers(self) -> None:
        """Drops the callers that wait, after the connection was lost: they can get no answer."""
        self._executor.forget_callers()
        self._terminals.forget_callers()
        self._transfers.close_all()

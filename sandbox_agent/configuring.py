"""Makes a session of its configuration, or says why this sandbox can't enforce it."""

from sandbox_agent.core import mount_flags
from sandbox_agent.core import params as given
from sandbox_agent.core.audit import EventBuffer
from sandbox_agent.core.budget import BudgetError
from sandbox_agent.core.configuration import parse
from sandbox_agent.core.loop import Loop
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.protocol import Message
from sandbox_agent.enforce import profile
from sandbox_agent.enforce.guards.forked import WaitingGuard
from sandbox_agent.enforce.kernel import Kernel
from sandbox_agent.enforce.libraries import Libraries
from sandbox_agent.enforce.profile import ConfinementError
from sandbox_agent.run.session_secrets import SessionSecrets
from sandbox_agent.session import Session


class RefusedError(Exception):
    """The sandbox can't serve that session; the message says why."""


class Configuring:
    """Prepares for a session, and makes it."""

    def __init__(
        self, loop: Loop, kernel: Kernel, events: EventBuffer, secrets: SessionSecrets
    ) -> None:
        self._loop = loop
        self._kernel = kernel
        self._events = events
        self._secrets = secrets
        # The commands that `prepare` has announced, and what they need.
        self._announced: tuple[list[str], Libraries] | None = None
        # The first guard of the coming session, if `prepare` has come.
        self._waiting = WaitingGuard(loop)

    def prepare(self, params: Message) -> None:
        """Finds in advance what the commands of the coming session need, and forks their guard.

        Raises: AgentError.
        """
        commands = given.texts(params, "commands")
        self._announced = commands, profile.programs_of(commands)
        self._waiting.fork()

    def configure(self, params: Message) -> Session:
        """The session, whose commands can be confined. Raises: RefusedError."""
        try:
            configuration = parse(params)
            commands, programs = self._announced or (None, None)
            if commands != configuration.commands:
                programs = None
            session = Session(
                *(self._loop, configuration, self._kernel, self._events, self._secrets),
                *(programs, self._waiting),
            )
            mount_flags.check(configuration.mounts)
            session.guards.confine()
        except (AgentError, BudgetError, mount_flags.LostFlagsError) as error:
            raise RefusedError(f"cannot be configured: {error}") from None
        except ConfinementError as error:
            raise RefusedError(f"cannot confine commands: {error}") from None
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing may run
            raise RefusedError(f"cannot be configured: {type(error).__name__}") from None
        return session

"""Whose sandbox it is: nobody's while it waits, then one session's for good."""

from orchestrator.ground.errors import SandboxUnavailableError
from orchestrator.state.session import Session


class Tenancy:
    """The session of one sandbox. It is set once, so no sandbox ever serves a second session."""

    def __init__(self, session: Session | None = None) -> None:
        self._session = session

    @property
    def vacant(self) -> bool:
        """Whether no session has the sandbox yet."""
        return self._session is None

    @property
    def session(self) -> Session:
        """The session. Raises: SandboxUnavailableError while there is none."""
        if self._session is None:
            raise SandboxUnavailableError("the sandbox has no session yet")
        return self._session

    def begin(self, session: Session) -> None:
        """Gives the sandbox to the session. Raises: ValueError if it has one."""
        if self._session is not None:
            raise ValueError("the sandbox belongs to another session")
        self._session = session

    def cut(self, text: str) -> str:
        """The text without the session's secrets."""
        return text if self._session is None else self._session.secrets.cut(text)

    def __repr__(self) -> str:
        """The session's id, as log lines show it; empty while there is none."""
        return "" if self._session is None else self._session.id

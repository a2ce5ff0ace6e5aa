"""The session's secrets in its sandbox: kept in memory, given to commands, cut out of reports.

The control plane provides them, and gets them back after its restart. Each value has a seal, by
which the control plane recognises its own values.
"""

from collections.abc import Collection
from typing import Any

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.protocol import EVENT_MEMBERS, Message
from sandbox_agent.decide.redaction import Redactor
from sandbox_agent.decide.variables import allowed_secret


class SessionSecrets:
    """The session's secrets. Malformed input raises ValueError or TypeError."""

    def __init__(self) -> None:
        self._variables: dict[str, tuple[str, str]] = {}
        # Secrets that were given to single commands only: each value with its seal.
        self._given: dict[str, str] = {}
        self._redactor = Redactor()

    def replace(self, params: Message) -> None:
        """Replaces the session's secrets."""
        variables = _sealed(params["variables"])
        given = {str(value): str(seal) for value, seal in params["given"]}
        self._variables, self._given = variables, given
        self._rebuild()

    def give(self, secrets: Any) -> dict[str, str]:
        """The secrets of one command as variables; from now on they are cut out too."""
        sealed = _sealed(secrets)
        for value, seal in sealed.values():
            self._given[value] = seal
        if sealed:
            self._rebuild()
        return {name: value for name, (value, _) in sealed.items()}

    def variables(self, patterns: Collection[str] | None) -> dict[str, str]:
        """The session secrets that its commands get under the level's rules."""
        return {
            name: value
            for name, (value, _) in self._variables.items()
            if allowed_secret(name, patterns)
        }

    def message(self) -> Message:
        """All secrets, in the form that `replace` takes."""
        return {
            "variables": {name: list(sealed) for name, sealed in self._variables.items()},
            "given": [list(sealed) for sealed in self._given.items()],
        }

    def cut(self, value: Any) -> Any:
        """A JSON value with all secrets cut out."""
        return self._redactor.value(value)

    def cut_reported(self, value: Any) -> Any:
        """A member of an event with all secrets cut out; the protocol's own names in it stay."""
        if isinstance(value, dict):
            return self._redactor.members(value, EVENT_MEMBERS)
        return self._redactor.value(value)

    def cut_error(self, error: AgentError) -> AgentError:
        """The error with all secrets cut out."""
        return AgentError(error.code, self._redactor.text(error.message), error.rule)

    def _rebuild(self) -> None:
        values = (value for value, _ in self._variables.values())
        self._redactor = Redactor((*values, *self._given))


def _sealed(members: Any) -> dict[str, tuple[str, str]]:
    if not isinstance(members, dict):
        raise TypeError("secrets must be an object")
    return {str(name): (str(value), str(seal)) for name, (value, seal) in members.items()}

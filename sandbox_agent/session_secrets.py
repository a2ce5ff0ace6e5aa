"""The session's secrets in its sandbox: in memory only, given to commands, cut from what is said.

The control plane gives them, and gets them back after a restart. Each value has a seal, by which
it knows its own values again.
"""

from collections.abc import Collection
from typing import Any

from sandbox_agent.commands import allowed_secret
from sandbox_agent.errors import AgentError
from sandbox_agent.protocol import Message
from sandbox_agent.redaction import Redactor


class SessionSecrets:
    """Holds what the control plane gives. Raises: ValueError, TypeError for what is malformed."""

    def __init__(self) -> None:
        self._variables: dict[str, tuple[str, str]] = {}
        # Those that single commands were given: their seals by value.
        self._given: dict[str, str] = {}
        self._redactor = Redactor()

    def replace(self, params: Message) -> None:
        """From now on these are the session's."""
        variables = _sealed(params["variables"])
        given = {str(value): str(seal) for value, seal in params["given"]}
        self._variables, self._given = variables, given
        self._rebuild()

    def give(self, secrets: Any) -> dict[str, str]:
        """Those of one command as variables; they are cut out from now on, too."""
        sealed = _sealed(secrets)
        for value, seal in sealed.values():
            self._given[value] = seal
        if sealed:
            self._rebuild()
        return {name: value for name, (value, _) in sealed.items()}

    def variables(self, patterns: Collection[str] | None) -> dict[str, str]:
        """Those of the session that its commands get, by the level's rules."""
        return {
            name: value
            for name, (value, _) in self._variables.items()
            if allowed_secret(name, patterns)
        }

    def message(self) -> Message:
        """All of them, as `replace` takes them."""
        return {
            "variables": {name: list(sealed) for name, sealed in self._variables.items()},
            "given": [list(sealed) for sealed in self._given.items()],
        }

    def cut(self, value: Any) -> Any:
        """A JSON value without any of them."""
        return self._redactor.value(value)

    def cut_error(self, error: AgentError) -> AgentError:
        """The error without any of them."""
        return AgentError(error.code, self._redactor.text(error.message), error.rule)

    def _rebuild(self) -> None:
        values = (value for value, _ in self._variables.values())
        self._redactor = Redactor((*values, *self._given))


def _sealed(members: Any) -> dict[str, tuple[str, str]]:
    if not isinstance(members, dict):
        raise TypeError("secrets must be an object")
    return {str(name): (str(value), str(seal)) for name, (value, seal) in members.items()}

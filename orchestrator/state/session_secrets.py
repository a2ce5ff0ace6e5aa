"""A session's secrets on the host: in memory only, and removed from all records and answers.

After a restart they come back from the session's agent. The agent is trusted with the values, but
not to define what is a secret, because it could then remove parts of the record. Each value
therefore has a seal, made with a key that is stored with the session and never given to the agent.
"""

import hashlib
import hmac
import secrets
from collections.abc import Container, Iterable, Mapping
from typing import Any, NamedTuple

from orchestrator.ground.errors import ConflictError, ValidationError
from orchestrator.host.link.held_secrets import HeldSecrets
from sandbox_agent.decide.protocol import Message
from sandbox_agent.decide.redaction import Redactor

# The limit for one session, because every recorded text is searched for each secret.
MOST_VALUES = 64
MOST_BYTES = 64 * 1024
# The latest values of the proxy that are removed from texts.
_MOST_OUTSIDE = 16


class StoredSecrets(NamedTuple):
    """The stored part of a live session's secrets: their names, and the key of the seals."""

    names: tuple[str, ...] = ()
    key: bytes = b""

    @classmethod
    def new(cls, names: Iterable[str]) -> "StoredSecrets":
        """For a new session."""
        return cls(tuple(sorted(names)), secrets.token_bytes(32))


class SessionSecrets:
    """The values of the session's secret variables, and of those for single commands."""

    def __init__(
        self,
        stored: StoredSecrets,
        variables: Mapping[str, str] | None = None,
        lease_id: str | None = None,
    ) -> None:
        """`variables` None: they must be learned from the agent.

        `lease_id` is only removed from texts: no command and no agent gets it, and it is forgotten
        when the control plane ends. Raises: ValidationError if they are too large together.
        """
        self.stored = stored
        self._lease = () if lease_id is None else (lease_id,)
        self._variables = dict(variables or {})
        self._known = variables is not None
        # Values for single commands; a dictionary for its order.
        self._given: dict[str, None] = {}
        # Values that went out in its requests, by name: its agent never has them.
        self._outside: dict[str, str] = {}
        self._rebuild()
        _check_size(self._variables.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the variables that every command gets."""
        return self.stored.names

    @property
    def variables(self) -> Mapping[str, str]:
        """The values that are known, by name."""
        return self._variables

    @property
    def lost(self) -> bool:
        """Whether the values are lost."""
        return set(self.stored.names) != self._variables.keys()

    @property
    def known(self) -> bool:
        """Whether texts can be searched for the values: after a restart once the agent answers."""
        return self._known

    def check_known(self) -> None:
        """Raises ConflictError if texts to be stored can't be searched for secrets yet."""
        if not self._known:
            raise ConflictError(
                "the session's secrets come back with its agent, which has not answered since the "
                "control plane was restarted: until then no text can be stored without them; "
                "resume the session, or leave the text out",
                reason="secrets_unknown",
            )

    def check(self) -> None:
        """Raises ConflictError if commands can't get their secrets."""
        if self.lost:
            raise ConflictError(
                f"the session's secrets ({', '.join(self.names)}) were lost when it was "
                "interrupted: close it, and create it again with the same id and its secrets",
                reason="secrets_lost",
            )

    def give(self, values: Mapping[str, str]) -> Message:
        """One command's secrets as they are sent; they are removed from everything from now on.

        Raises: ConflictError, ValidationError if there are too many.
        """
        more = [value for value in values.values() if value not in self._known_values()]
        if more:
            every = [*self._known_values(), *more]
            if len(every) > MOST_VALUES:
                raise ConflictError(
                    f"the session was given {MOST_VALUES} different secrets, which is the "
                    "maximum: create another session",
                    reason="too_many_secrets",
                )
            _check_size(every)
            self._given |= dict.fromkeys(more)
            self._rebuild()
        return self._sealed(values)

    def message(self) -> Message | None:
        """All of them in the form for a new agent; None if there are none."""
        if not self._known_values():
            return None
        return {
            "variables": self._sealed(self._variables),
            "given": [[value, self._seal(value)] for value in self._given],
        }

    def learn(self, held: HeldSecrets) -> None:
        """Learns the secrets from the agent of an earlier control plane's session, once."""
        if self._known:
            return
        self._known = True
        self._variables = {
            name: value
            for name, (value, seal) in held.variables.items()
            if name in self.stored.names and self._is_ours(value, seal)
        }
        given = (value for value, seal in held.given if self._is_ours(value, seal))
        self._given = dict.fromkeys(given)
        self._rebuild()

    def learn_none(self) -> None:
        """Notes that no agent holds any of them: the session has no sandbox."""
        self._known = True

    def went_out(self, name: str, value: str) -> None:
        """Notes that the proxy put it into a request: it is removed from what the host answers."""
        if self._outside.get(name) == value:
            return
        self._outside.pop(name, None)
        self._outside[name] = value
        while len(self._outside) > _MOST_OUTSIDE:
            del self._outside[next(iter(self._outside))]
        self._rebuild()

    def cut(self, text: str) -> str:
        """The text without the secrets."""
        return self.redactor.text(text)

    def cut_value(self, value: Any) -> Any:
        """A JSON value without the secrets."""
        return self.redactor.value(value)

    def cut_members(
        self, members: Mapping[str, Any], known: Container[str] | None = None
    ) -> dict[str, Any]:
        """The members without the secrets; names that are `known` are kept. None: all names."""
        return self.redactor.members(members, known)

    def _known_values(self) -> set[str]:
        return {*self._variables.values(), *self._given}

    def _rebuild(self) -> None:
        others = (*self._lease, *self._outside.values())
        self.redactor = Redactor((*self._known_values(), *others))

    def _sealed(self, values: Mapping[str, str]) -> Message:
        return {name: [value, self._seal(value)] for name, value in values.items()}

    def _seal(self, value: str) -> str:
        return hmac.new(self.stored.key, value.encode(), hashlib.sha256).hexdigest()

    def _is_ours(self, value: str, seal: str) -> bool:
        return hmac.compare_digest(self._seal(value), seal)


def check_not_stored(members: Mapping[str, Any], cut: Mapping[str, Any]) -> None:
    """`cut` removes the secrets. Raises: ValidationError if one of the values contains a secret."""
    for name, member in members.items():
        if cut[name] != member:
            raise ValidationError(
                f"{name} has the value of a secret in it, and would be stored", field=name
            )


def _check_size(values: Iterable[str]) -> None:
    if sum(len(value.encode()) for value in values) > MOST_BYTES:
        raise ValidationError(
            f"the secrets of a session may have {MOST_BYTES} bytes in all", field="secrets"
        )

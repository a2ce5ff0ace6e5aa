"""One secret: a value that only the proxy has, and the requests that it is for. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import SecretStr

from orchestrator.state.session import Session
from paddock.contract.words import SecretScope

PREFIX = "paddock:"


class Holder(NamedTuple):
    """Whose a secret is: a session's (`key` is its owner), a key's, or the instance's."""

    key: str = ""
    session_key: str = ""

    @property
    def scope(self) -> SecretScope:
        """How far it reaches."""
        if self.session_key:
            return "session"
        return "key" if self.key else "instance"

    def includes(self, session: Session) -> bool:
        """Whether it reaches this session."""
        return self.key in ("", session.owner) and self.session_key in ("", session.key)


INSTANCE = Holder()


@dataclass(frozen=True, slots=True)
class Secret:
    """`levels` and `keys` None: all. `value` None: it is lost, or is being removed.

    `configured`: it comes from the operator's configuration.
    """

    name: str
    holder: Holder
    hosts: tuple[str, ...]
    headers: tuple[str, ...]
    levels: tuple[str, ...] | None
    variable: str | None
    created_at: str
    set_at: str
    value: SecretStr | None = field(repr=False)
    keys: tuple[str, ...] | None = None
    set_by: str | None = None
    configured: bool = False

    @property
    def placeholder(self) -> str:
        """The text that requests have in its place."""
        return f"{PREFIX}{self.name}"

    def serves(self, session: Session) -> bool:
        """Whether the session's requests may have it."""
        return (
            self.value is not None
            and session.level.network == "egress"
            and self.holder.includes(session)
            and (self.levels is None or session.level.name in self.levels)
            and (self.keys is None or session.owner in self.keys)
        )

    def may_be_seen(self, owner: str | None) -> bool:
        """Whether it concerns sessions of that key; None: of any."""
        keys = self.keys if self.holder.key == "" else (self.holder.key,)
        return owner is None or keys is None or owner in keys


def usable(
    session: Session, widest_first: Iterable[Mapping[str, Secret]]
) -> tuple[dict[str, Secret], dict[str, Secret]]:
    """The secrets that the session may use at present, by name and by variable.

    Of several with one name or one variable, it is the narrowest.
    """
    layers = [
        {name: each for name, each in layer.items() if each.serves(session)}
        for layer in widest_first
    ]
    by_name: dict[str, Secret] = {}
    for layer in layers:
        by_name |= layer
    by_variable = {
        each.variable: each
        for layer in layers
        for name, each in layer.items()
        if each.variable is not None and by_name[name] is each
    }
    return by_name, by_variable

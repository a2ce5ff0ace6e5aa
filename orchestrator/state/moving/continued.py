"""What a session goes on with on another node, besides what its snapshot has."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import SecretStr

from orchestrator.host.link.held_secrets import parse_secrets
from orchestrator.rules.egress.session_rules import OwnRules
from orchestrator.rules.egress.usage import EgressUsage
from orchestrator.state.secret import Holder, Secret
from orchestrator.state.secret_rows import use_of
from orchestrator.state.session import Session
from orchestrator.state.session_secrets import SessionSecrets, StoredSecrets
from sandbox_agent.decide.protocol import Message


@dataclass(frozen=True, slots=True)
class EarlierLife:
    """The life that a session had on the node `node`, up to the event `event` with that hash."""

    node: str
    session_key: str
    incarnation: int
    event: int
    hash: str

    def recorded(self) -> dict[str, Any]:
        """The member of the event of the next life's creation that links the two chains."""
        return {
            "moved_from": {
                "node": self.node,
                "incarnation": self.incarnation,
                "event": self.event,
                "hash": self.hash,
            }
        }


@dataclass(frozen=True, slots=True)
class CarriedSecret:
    """A secret of the session that only the proxy has; `use` is as `secret_rows.use_of` says."""

    name: str
    use: Mapping[str, Any]
    value: str = field(repr=False)
    set_by: str | None
    created_at: str
    set_at: str

    @classmethod
    def of(cls, secret: Secret) -> "CarriedSecret | None":
        """None: its value is lost."""
        if secret.value is None:
            return None
        value = secret.value.get_secret_value()
        use = use_of(secret)
        return cls(secret.name, use, value, secret.set_by, secret.created_at, secret.set_at)

    def held_by(self, holder: Holder) -> Secret:
        """The secret as another session's."""
        levels = self.use["levels"]
        return Secret(
            self.name,
            holder,
            tuple(self.use["hosts"]),
            tuple(self.use["headers"]),
            None if levels is None else tuple(levels),
            self.use["variable"],
            self.created_at,
            self.set_at,
            SecretStr(self.value),
            set_by=self.set_by,
        )


@dataclass(frozen=True, slots=True)
class Continued:
    """All of it. `secrets` is in the form for an agent; None: there are none, or they are lost.

    The values are in no snapshot. They pass between two nodes, and are stored sealed only.
    """

    earlier: EarlierLife
    owner: str
    handle_sha256: str
    level_sha256: str
    own_rules: Mapping[str, Any]
    egress_usage: Mapping[str, int]
    reissues: int
    secret_names: tuple[str, ...]
    # In hex.
    seal_key: str = field(repr=False)
    secrets: Message | None = field(default=None, repr=False)
    proxy_secrets: tuple[CarriedSecret, ...] = ()

    @classmethod
    def of(cls, session: Session, earlier: EarlierLife, proxy: list[Secret]) -> "Continued":
        """That of a session; `proxy` are its own secrets that only the proxy has."""
        carried = [found for each in proxy if (found := CarriedSecret.of(each)) is not None]
        return cls(
            earlier,
            session.owner,
            session.handle_sha256,
            session.level.sha256,
            session.own_rules.stored(),
            session.egress_usage.stored(),
            session.reissues,
            session.secrets.names,
            session.secrets.stored.key.hex(),
            session.secrets.message(),
            tuple(carried),
        )

    def take(self, session: Session) -> None:
        """Gives the new life what it goes on with. Raises: ValueError for what no session has."""
        session.own_rules = OwnRules.restored(self.own_rules)
        session.egress_usage = EgressUsage.restored(self.egress_usage)
        session.reissues = self.reissues
        stored = StoredSecrets(self.secret_names, bytes.fromhex(self.seal_key))
        session.secrets = SessionSecrets(stored)
        recall(session, self.secrets)


def recall(session: Session, secrets: Message | None) -> None:
    """Gives a session without a sandbox its secrets back. Raises: ValueError."""
    if secrets is not None:
        session.secrets.learn(parse_secrets(secrets))
    session.secrets.learn_none()

"""Secrets of sessions that move, while no sandbox has them: sealed with this node's key."""

import json

from pydantic import SecretStr

from orchestrator.record.secrets.sealer import Sealer
from orchestrator.state.moving.continued import recall
from orchestrator.state.moving.move_rows import MoveRow
from orchestrator.state.session import Session


class MoveSecrets:
    """Seals them for the row of a move, and gives them back after a kill."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer

    def sealed(self, session: Session) -> bytes | None:
        """None: the session has none."""
        message = session.secrets.message()
        if message is None:
            return None
        return self._sealer.seal(SecretStr(json.dumps(message)), _bound(session.key))

    def recall(self, session: Session, row: MoveRow) -> None:
        """Gives a session without a sandbox its secrets; lost ones stay lost."""
        opened = None if row.sealed is None else self._sealer.open(row.sealed, _bound(session.key))
        recall(session, None if opened is None else json.loads(opened.get_secret_value()))


def _bound(session_key: str) -> bytes:
    return f"move {session_key}".encode()

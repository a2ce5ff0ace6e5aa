"""What the other nodes of a cluster have ended of users, as its database tells."""

from orchestrator.cluster.shared import Connection
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import all_of
from orchestrator.rules.access.user_ends import UserEnd, UserEndKind
from orchestrator.rules.oidc import user_rows
from orchestrator.rules.oidc.sign_in import SignIn

_PAGE = 500
_KINDS = frozenset(UserEndKind)


class SharedEnds:
    """Puts in force here what is new, and keeps it for a start without the cluster's database."""

    def __init__(self, sign_in: SignIn, own: Database) -> None:
        """`own` is this node's database."""
        self._sign_in = sign_in
        self._own = own
        self._known = 0

    async def update(self, connection: Connection) -> None:
        """Takes what has come since the last look. Raises: errors of both databases."""
        while True:
            rows = await connection.fetch(
                "SELECT name, what, moment, version FROM user_ends WHERE version > $1"
                " ORDER BY version LIMIT $2",
                *(self._known, _PAGE),
            )
            found = [UserEnd(row["name"], _kind(row["what"]), row["moment"]) for row in rows]
            news = [each for each in found if self._sign_in.end_user(each)]
            if news:
                effect = all_of(*map(user_rows.leaving, news))
                await self._own.write(effect, reserve=True)
            if rows:
                self._known = rows[-1]["version"]
            if len(rows) < _PAGE:
                return


def _kind(text: str) -> UserEndKind:
    """What only a later version knows ends everything."""
    return UserEndKind(text) if text in _KINDS else UserEndKind.LEFT

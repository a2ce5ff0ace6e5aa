"""Both sides of moves between nodes, and what is asked of the cluster about them."""

from orchestrator.cluster.moves import Moves
from orchestrator.ground.open import GroundFloor
from orchestrator.record.open import RecordFloor
from orchestrator.rules.open import RulesFloor
from orchestrator.sandbox.open import SandboxFloor
from orchestrator.sessions.deadlines import Deadlines
from orchestrator.sessions.in_cluster.arrivals import Arrivals
from orchestrator.sessions.in_cluster.departures import Departures
from orchestrator.sessions.in_cluster.move_secrets import MoveSecrets
from orchestrator.sessions.in_cluster.session_places import SessionPlaces
from orchestrator.sessions.new_session import SessionMaker
from orchestrator.sessions.session_ends import SessionEnds
from orchestrator.sessions.suspension import Suspensions
from orchestrator.settings.settings import Settings
from orchestrator.state.registry import Registry


class SessionMoves:
    """Sessions that arrive, and sessions that leave."""

    def __init__(
        self,
        settings: Settings,
        ground: GroundFloor,
        rules: RulesFloor,
        record: RecordFloor,
        sandbox: SandboxFloor,
        moves: Moves,
        sessions: Registry,
        places: SessionPlaces,
        deadlines: Deadlines,
        suspensions: Suspensions,
        ends: SessionEnds,
    ) -> None:
        maker = SessionMaker(
            settings, rules, sandbox.listed_images, sandbox.level_images, sandbox.workspaces
        )
        secrets = MoveSecrets(record.sealer)
        self.arrivals = Arrivals(
            *(ground, record, sandbox, maker, sessions, places, moves, deadlines, secrets)
        )
        self.departures = Departures(
            *(ground.database, record.recorder, sessions, sandbox.workspaces),
            *(suspensions, ends, moves, secrets),
        )

    async def settle(self) -> None:
        """Asks the cluster about all that are not settled.

        Raises: ClusterUnavailableError, AuditUnavailableError, StoreError.
        """
        await self.departures.settle_all()
        await self.arrivals.settle_all()

"""The control plane without HTTP: opens the floors in their order, and closes them in reverse."""

from contextlib import AsyncExitStack
from functools import partial
from typing import Self

from orchestrator.cluster.open import open_cluster
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.loop_lag import LoopLag
from orchestrator.ground.open import lock, open_ground
from orchestrator.ground.threads import bounded
from orchestrator.host.engine.base import Engine
from orchestrator.host.open import open_host
from orchestrator.operate.backups.restoration import settle
from orchestrator.operate.instance import Instance
from orchestrator.operate.open import open_operate
from orchestrator.operate.operator.reload import Reload
from orchestrator.programs.open import open_programs, recover_programs
from orchestrator.record.open import open_record
from orchestrator.rules.open import open_rules
from orchestrator.sandbox.egress.resolver import Resolver
from orchestrator.sandbox.open import open_sandboxes
from orchestrator.sessions.open import join_cluster, open_sessions, recover_sessions
from orchestrator.sessions.recovery import Recovered
from orchestrator.settings.preview_address import PreviewOrigin, preview_address, preview_url
from orchestrator.settings.settings import Settings, ensure_state_dir
from orchestrator.work.open import open_work

# A restoration that was interrupted is completed; archives elsewhere are copied.
_SETTLE_SECONDS = 600.0


class ControlPlane(Instance):
    """One instance: `open` it, serve with its parts, `close` it. Sandboxes outlive it."""

    settings: Settings
    recovered: Recovered
    previews: PreviewOrigin

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        url = preview_url(settings, preview_address(settings))
        self.previews = PreviewOrigin(url, settings.preview_domain)
        self._closers = AsyncExitStack()

    @classmethod
    async def open(
        cls,
        settings: Settings,
        engine: Engine | None = None,
        resolver: Resolver | None = None,
        lag: LoopLag | None = None,
    ) -> Self:
        """Locks the state directory, opens everything, and takes over what an earlier run left.

        `engine` and `resolver` are for tests; None: the Docker engine of the settings, and this
        host's name servers. `lag` is that of the loop; None: it is not measured. Raises:
        ConfigError, StoreError, StorageError, EngineUnavailableError, AuditUnavailableError.
        """
        self = cls(settings)
        try:
            await self._open(engine, resolver, lag or LoopLag())
        except BaseException:
            await self.close()
            raise
        return self

    async def _open(self, engine: Engine | None, resolver: Resolver | None, lag: LoopLag) -> None:
        """Opens the floors; each step needs the steps before it."""
        settings, closers = self.settings, self._closers
        ensure_state_dir(settings.state_dir)
        lock(settings.state_dir, closers)
        FaultPoint.START_LOCKED.reached()
        await bounded(partial(settle, settings), _SETTLE_SECONDS)
        # The operator's files come first, so that a mistake in them changes nothing.
        files = Reload(settings)
        rules = open_rules(
            settings,
            files.levels,
            files.keys,
            files.issuers,
            files.session_policies,
            files.tools,
            files.templates,
            closers,
        )
        ground = await open_ground(settings.state_dir, lag, closers)
        await rules.sign_in.load(ground.database)
        cluster = await open_cluster(settings, ground, files.key_files.source, closers)
        await files.key_files.use(cluster.key_source, ground.tasks)
        host = await open_host(settings, ground, engine, closers)
        await files.use(host.runtimes)
        record = await open_record(settings, ground, rules, cluster, files.secrets, closers)
        below = settings, ground, host, rules, cluster, record
        sandbox = await open_sandboxes(*below, files.images, resolver, closers)
        work = open_work(settings, ground, rules, record, sandbox, cluster.shared, closers)
        sessions = await open_sessions(*below, sandbox, work, closers)
        programs = open_programs(settings, ground, host, rules, record, sandbox, work, sessions)
        # What an earlier run left is taken over before anything new begins.
        self.recovered = await recover_sessions(
            settings, ground, host, record, sandbox, work, sessions, closers
        )
        await join_cluster(
            settings, ground, cluster, sessions, host, record, sandbox, work, closers
        )
        await recover_programs(settings, ground, record, sandbox, work, sessions, programs, closers)
        operate = await open_operate(settings, files, *below[1:], sandbox, work, sessions, closers)
        self._offer(
            ground, host, rules, cluster, record, sandbox, work, sessions, programs, operate
        )

    async def close(self) -> None:
        """Closes everything in reverse order; sandboxes keep running."""
        await self._closers.aclose()

"""The control plane without HTTP: creates and connects every part, and closes them in order."""

import logging
import os
import re
import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from orchestrator.ground.aside import Aside
from orchestrator.ground.check import Check
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.loop_lag import LoopLag
from orchestrator.ground.metrics import Metrics
from orchestrator.ground.store import directories
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.scrubber import Scrubber
from orchestrator.ground.tasks import Tasks
from orchestrator.ground.threads import bounded
from orchestrator.host.engine.base import Engine
from orchestrator.host.engine.docker import DockerEngine
from orchestrator.host.engine.measured import measured
from orchestrator.host.link.messages import Hello
from orchestrator.host.node.base import Node
from orchestrator.host.node.local import LocalNode
from orchestrator.host.node.resources import free_bytes
from orchestrator.host.workspace import slots
from orchestrator.host.workspace.uid_range import claim as claim_uids
from orchestrator.operate.backups.restoring import settle
from orchestrator.operate.checks.readiness import Readiness
from orchestrator.operate.hooks.clock import WallClock
from orchestrator.operate.hooks.gauges import HookGauges
from orchestrator.operate.hooks.hook_rules import HookRules
from orchestrator.operate.hooks.service import Hooks
from orchestrator.operate.observe.gauges import Gauges
from orchestrator.operate.observe.usage import UsageHistory
from orchestrator.operate.operator.key_edits import KeyEdits
from orchestrator.operate.operator.reload import Reload
from orchestrator.operate.snapshots.service import Snapshots
from orchestrator.programs.questions.part import QuestionsPart
from orchestrator.programs.questions.questions import Questions
from orchestrator.programs.spawning.runs import SpawnedRuns
from orchestrator.programs.spawning.service import Spawning
from orchestrator.programs.turns.host_tools import HostTools
from orchestrator.programs.turns.operations.context import Services
from orchestrator.programs.turns.rollbacks import TurnRollbacks
from orchestrator.programs.turns.service import SessionTurns
from orchestrator.record.audit.agent_events import AgentEvents
from orchestrator.record.audit.anchoring import Anchoring, load_key
from orchestrator.record.audit.archiving import Archiving
from orchestrator.record.audit.budgets import Budgets
from orchestrator.record.audit.follow import Followers
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.record_room import RecordRoom
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.audit.refusal_marks import RefusalMarks
from orchestrator.record.audit.stop_records import StopRecords
from orchestrator.record.secrets.outside import OutsideSecrets
from orchestrator.record.secrets.sealing import Sealer
from orchestrator.rules.access.admin_key import generated_key
from orchestrator.rules.access.key_expiry import KeyExpiry
from orchestrator.rules.access.keys import KeyRing
from orchestrator.rules.policy.levels import Levels
from orchestrator.rules.policy.policy_files import SessionPolicies
from orchestrator.sandbox.egress.interception import Interception
from orchestrator.sandbox.egress.key_bytes import KeyBytes
from orchestrator.sandbox.egress.part import EgressPart
from orchestrator.sandbox.egress.resolver import CheckedResolver, Resolver
from orchestrator.sandbox.egress.service import SessionEgress
from orchestrator.sandbox.packs.firewall import ContextFirewall
from orchestrator.sandbox.ports.limits import PORT_LIMITS
from orchestrator.sandbox.ports.part import PortsPart
from orchestrator.sandbox.ports.service import Ports
from orchestrator.sandbox.sandboxes.allowed_images import AllowedImages
from orchestrator.sandbox.sandboxes.parts import Part
from orchestrator.sandbox.sandboxes.service import Sandboxes
from orchestrator.sandbox.sandboxes.subscribers import Subscribers
from orchestrator.sandbox.sandboxes.warm_pool import WarmPool
from orchestrator.sandbox.sandboxes.workspaces import Workspaces
from orchestrator.sessions.kept_workspaces import KeptWorkspaces
from orchestrator.sessions.recovery import Recovered, Recovery
from orchestrator.sessions.refinement import Refinement
from orchestrator.sessions.service import Sessions
from orchestrator.sessions.streams import Streams
from orchestrator.sessions.tickets import Tickets
from orchestrator.sessions.watcher import Watcher
from orchestrator.settings.operator_secrets import check_levels
from orchestrator.settings.preview_address import preview_address, preview_url
from orchestrator.settings.settings import Settings, ensure_state_dir
from orchestrator.state.session import Session
from orchestrator.state.shapes import cold_levels
from orchestrator.work.approvals.approval_rows import Approval
from orchestrator.work.approvals.service import Approvals
from orchestrator.work.approvals.webhook import Webhook, requested
from orchestrator.work.commands.captures import Captures
from orchestrator.work.commands.execution import Executions
from orchestrator.work.commands.governed import GovernedCommands
from orchestrator.work.commands.left_evidence import remove_left
from orchestrator.work.files.file_archives import FileArchives
from orchestrator.work.files.file_requests import FileRequests
from orchestrator.work.files.files import Files
from orchestrator.work.memory.service import Memory
from orchestrator.work.models.service import Models
from orchestrator.work.proposals.service import Proposals
from orchestrator.work.terminals.governed import GovernedTerminals
from orchestrator.work.terminals.service import Terminals
from orchestrator.work.terminals.session_tools import SessionTools
from orchestrator.work.terminals.shells import Shells

log = logging.getLogger(__name__)

# A restoration that was interrupted is completed; archives elsewhere are copied.
_SETTLE_SECONDS = 600.0
# Proposals of which a program is told.
_MOST_STAGED = 1000
_INSTANCE = re.compile(r"[0-9a-f]{8}")


class ControlPlane:
    """One instance: `open` it, serve with its parts, `close` it. Sandboxes outlive it."""

    settings: Settings
    keys: KeyRing
    levels: Levels
    session_policies: SessionPolicies
    models: Models
    memory: Memory
    reload: Reload
    ready: Readiness
    database: Database
    ledger: Ledger
    followers: Followers
    streams: Streams
    node: Node
    images: AllowedImages
    ports: Ports
    proposals: Proposals
    snapshots: Snapshots
    engine: Engine
    pool: WarmPool
    sessions: Sessions
    executions: Executions
    egress: SessionEgress
    files: Files
    terminals: Terminals
    tools: GovernedTerminals
    session_tools: SessionTools
    host_tools: HostTools
    shells: Shells
    tickets: Tickets
    turns: SessionTurns
    spawning: Spawning
    spawned_runs: SpawnedRuns
    governed_commands: GovernedCommands
    approvals: Approvals
    archiving: Archiving
    recovered: Recovered
    refinement: Refinement
    usage: UsageHistory
    key_edits: KeyEdits
    hooks: Hooks
    _sealer: Sealer
    _scrubber: Scrubber
    _room: RecordRoom
    _recorder: Recorder
    _stops: StopRecords
    _budgets: Budgets
    _agent_events: AgentEvents
    _firewall: ContextFirewall
    _captures: Captures
    _subscribers: Subscribers
    _workspaces: Workspaces
    _sandboxes: Sandboxes

    def __init__(self, settings: Settings, lag: LoopLag) -> None:
        self.settings = settings
        self.lag = lag
        # Where clients reach open ports; None: nowhere.
        self.preview_url = preview_url(settings, preview_address(settings))
        self.metrics = Metrics()
        self.tasks = Tasks(self.metrics.task_restarted)
        self.aside = Aside()
        self._resources = AsyncExitStack()

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
        self = cls(settings, lag or LoopLag())
        try:
            await self._open(engine, resolver)
        except BaseException:
            await self.close()
            raise
        return self

    async def _open(self, engine: Engine | None, resolver: Resolver | None) -> None:
        """Opens the parts; each of these steps needs those before it."""
        settings = self.settings
        ensure_state_dir(settings.state_dir)
        self._resources.callback(os.close, _lock(settings.state_dir))
        FaultPoint.START_LOCKED.reached()
        await bounded(lambda: settle(settings), _SETTLE_SECONDS)
        self._read_rules()
        await self._open_store()
        await self._open_node(engine)
        await self._open_record()
        await self._open_work()
        self._open_sessions(await self._open_ways(resolver))
        await self._recover()
        self._keep_running()
        await self._open_hooks()

    def _read_rules(self) -> None:
        """Levels, keys, tools, images and secrets, which may change while it runs."""
        settings = self.settings
        self.reload = Reload(settings)
        self.levels, self.keys = self.reload.levels, self.reload.keys
        self.session_policies = self.reload.session_policies
        check_levels(settings.secrets, self.levels)
        for name in cold_levels(settings.warm_least, self.levels):
            log.warning("warm_least: sandboxes of level %s can't be started ahead", name)
        expiry = KeyExpiry(self.keys)
        self._resources.callback(expiry.close)
        expiry.start()

    async def _open_store(self) -> None:
        """The database and the ledger in it."""
        self.database = await Database.open(self.settings.state_dir / "paddock.db")
        self._resources.push_async_callback(self.database.close)
        self._scrubber = Scrubber(self.database, self.tasks)
        self._resources.push_async_callback(self._scrubber.close)
        self._scrubber.start()
        self.ledger = Ledger(self.database)
        self._resources.push_async_callback(self.ledger.close)

    async def _open_node(self, engine: Engine | None) -> None:
        """The engine, this host, and what tells whether both can take sessions."""
        settings = self.settings
        instance = _instance(settings.state_dir / "instance")
        self._uids = claim_uids(
            settings.uid_base,
            settings.uid_count,
            instance,
            await self.database.read(slots.uids),
        )
        self._resources.callback(self._uids.close)
        engine = engine or DockerEngine(
            instance,
            host=settings.docker_host,
            timeout=settings.engine_timeout,
            threads=settings.engine_threads,
            resolvers=settings.resolvers,
        )
        self.engine = measured(engine, self.metrics)
        self._resources.push_async_callback(self.engine.close)
        self.node = node = await LocalNode.open(settings, self.engine)
        self._resources.push_async_callback(node.close)
        self.images = AllowedImages(self.engine, self.reload.images)
        self._resources.push_async_callback(self.images.close)
        self.ready = Readiness(
            settings, node, self.database, self.reload, self.tasks, self.lag, self._uids
        )

    async def _open_record(self) -> None:
        """What records: within the room that keys and the disk have."""
        settings = self.settings
        self._room = RecordRoom(
            self.keys,
            settings.key_limits,
            settings.min_free_disk_bytes,
            lambda: free_bytes(settings.state_dir),
        )
        await self._room.load(self.database)
        marks = RefusalMarks(self.database)
        self._recorder = Recorder(self.ledger, self.metrics, self._room, self._on_full, marks)
        self._resources.push_async_callback(self._recorder.close)
        # Sessions are built from the others; their ends are handled only once everything exists.
        self._stops = StopRecords()
        self._resources.push_async_callback(self._stops.close)
        self._budgets = Budgets(
            self._recorder, self._stops, self.metrics, lambda session: self.sessions.expire(session)
        )
        self._agent_events = AgentEvents(self._recorder, self._budgets)
        self._resources.push_async_callback(self._agent_events.close)

    async def _open_work(self) -> None:
        """What works in sandboxes: commands, files, terminals, tools and their approvals."""
        settings = self.settings
        self._sealer = Sealer(settings.state_dir)
        self.secrets = OutsideSecrets(
            self.database, self._recorder, self.reload.secrets, self._sealer
        )
        await self.secrets.load()
        self.memory = Memory(self.database, self._recorder)
        self.models = Models(settings.models)
        self._resources.push_async_callback(self.models.close)
        self.executions = Executions(
            *(self._recorder, self.metrics, self._budgets, self.secrets.variables),
            *(settings.mounts, self.aside),
        )
        self._resources.push_async_callback(self.executions.close)
        self._firewall = ContextFirewall(
            self._recorder, lambda session, error, then: self.sessions.miss(session, error, then)
        )
        self._resources.push_async_callback(self._firewall.close)
        file_requests = FileRequests(self._recorder, self._firewall)
        self.files = Files(file_requests)
        self.file_archives = FileArchives(file_requests)
        self.approvals = Approvals(self.database, self.ledger, self._recorder, self._announcer())
        self.terminals = Terminals(
            self.database, self._recorder, self._budgets, settings.state_dir, self._expire_approvals
        )
        self._captures = Captures(self.files, self._recorder, settings.state_dir / "evidence")
        self.governed_commands = GovernedCommands(
            self.reload.tools,
            self.keys,
            self._recorder,
            self.executions,
            self.approvals,
            self._captures,
        )
        self.tools = GovernedTerminals(
            self.reload.tools, self.keys, self.terminals, self.approvals, self.files, self._recorder
        )
        self._resources.push_async_callback(self.tools.close)
        self.session_tools = SessionTools(self.reload.tools, self.keys)
        self.host_tools = HostTools(self._recorder, settings.tool_urls)
        self.shells = Shells(self.keys, self.terminals, self._recorder)
        self._resources.callback(self.shells.close)
        self.tickets = Tickets(self.keys)
        self._subscribers = self._subscribed()
        self._rollbacks = TurnRollbacks()
        services = Services(
            *(self.files, self.executions, self.models),
            lambda principal, session: self.proposals.show(principal, session, "", _MOST_STAGED),
            lambda *asker: self._rollbacks.roll_back(self.proposals, *asker),
            lambda principal, session: self.sessions.using(principal, session),
            self.memory,
            self.governed_commands,
            self.tools,
            self.terminals,
            self.session_tools,
            self.host_tools,
            lambda *asked: self.spawned_runs.run(*asked),
        )
        self.turns = SessionTurns(self.database, self._recorder, self._budgets, services, self.lag)
        self._subscribers.on_gone(self.turns.on_gone)
        self._subscribers.on_event(self._firewall.on_miss, "read")

    async def _open_ways(self, resolver: Resolver | None) -> tuple[Part, ...]:
        """The parts of sandboxes through which connections leave and reach them."""
        settings = self.settings
        self.key_bytes = KeyBytes(self.keys, settings.key_limits)
        await self.key_bytes.load(self.database)
        interception = Interception(settings.state_dir, settings.ca_file)
        way_out = EgressPart(
            self.node,
            self._recorder,
            self._budgets,
            resolver or CheckedResolver(),
            interception,
            self.secrets,
            self.key_bytes,
        )
        self._resources.push_async_callback(way_out.shut_down)
        self._subscribers.on_gone(way_out.settle)
        self.egress = SessionEgress(self._recorder, self._stops)
        secret = generated_key(settings.state_dir / "preview.key")
        way_in = PortsPart(self.node, PORT_LIMITS)
        self.ports = Ports(
            self.database, self._recorder, self._stops, self.keys, secret, way_in, PORT_LIMITS
        )
        self._resources.push_async_callback(self.ports.shut_down)
        self._subscribers.on_end(self.ports.ended)
        questions = Questions(
            self.turns.running_number,
            lambda asker, session: self.proposals.show(asker, session, "", _MOST_STAGED),
        )
        return way_out, way_in, QuestionsPart(self.node, questions)

    def _open_sessions(self, ways: tuple[Part, ...]) -> None:
        """Sandboxes and sessions, and what follows them."""
        settings = self.settings
        self._workspaces = Workspaces(settings, self.database, self.node.storage, self._uids)
        self._sandboxes = Sandboxes(
            settings,
            self.node,
            self.ledger,
            self._workspaces,
            self._subscribers,
            ways,
            self.metrics,
        )
        self._resources.push_async_callback(self._sandboxes.close)
        self.pool = self._sandboxes.pool
        self.sessions = Sessions(
            settings,
            self.levels,
            self.session_policies,
            self.reload.images,
            self.database,
            self.node,
            self._recorder,
            self.executions,
            self._sandboxes,
            self._workspaces,
            self._budgets,
            self._stops,
            self._scrubber.want,
            self.metrics,
        )
        self.spawning = Spawning(
            self.keys, self.levels, self.session_policies, self._recorder, self.sessions
        )
        self.spawned_runs = SpawnedRuns(self.spawning, self.sessions, self.turns)
        suspensions = self.sessions.suspensions
        self.proposals = Proposals(
            self.database, self._recorder, self.node.storage, suspensions.without_sandbox
        )
        self.snapshots = Snapshots(
            settings,
            self.database,
            self._recorder,
            self.node.storage,
            self._workspaces,
            self.sessions,
            self.session_policies,
        )
        self.streams = Streams(settings.session_max_streams, settings.key_max_streams)
        self.followers = Followers(self.ledger, self.database, self.sessions.registry.owner)
        self.metrics.add(
            Gauges(
                self.sessions,
                self.levels,
                self.ledger,
                self.node,
                self.pool,
                self.key_bytes,
                self.lag,
            )
        )
        self._resources.push_async_callback(self.sessions.shut_down)

    async def _recover(self) -> None:
        """Takes over what an earlier run left, before anything new begins."""
        settings = self.settings
        recovery = Recovery(
            settings,
            self.database,
            self.engine,
            self._recorder,
            self.executions,
            self._sandboxes,
            self._workspaces,
            self.sessions,
            self._firewall,
            self.proposals,
            self._scrubber.want,
        )
        self.refinement = Refinement(self.database, self._workspaces)
        self.recovered = await recovery.run()
        kept = KeptWorkspaces(self._workspaces, settings.workspace_retention, self.tasks)
        kept.start()
        self._resources.push_async_callback(kept.close)
        await self.terminals.recover(self.sessions.registry.all)
        self._resources.push_async_callback(self.terminals.shut_down)
        await self.turns.recover(self.sessions.registry.all)
        self._resources.push_async_callback(self._rollbacks.drain)
        self._resources.push_async_callback(self.spawned_runs.shut_down)
        self._resources.push_async_callback(self.turns.shut_down)
        await self.ports.recover(self.sessions.registry.all)
        await self.secrets.recover(self.sessions.registry.all)
        await remove_left(self.database, settings.state_dir / "evidence")
        await self.approvals.recover()

    def _keep_running(self) -> None:
        """Starts what works without being asked: archiving, anchoring, watching, reloading."""
        settings = self.settings
        self.archiving = Archiving(
            self.database,
            self.ledger,
            settings.archive_path,
            settings.state_dir / "evidence",
            self._room.add,
            self._room.check_disk,
        )
        self.archiving.start(settings.audit_retention, self.tasks)
        self._resources.push_async_callback(self.archiving.close)
        self._anchor()
        self.usage = UsageHistory(self.node, self._workspaces, lambda: self.sessions.registry.live)
        self.usage.start(self.tasks)
        self._resources.push_async_callback(self.usage.close)
        watcher = Watcher(self.engine, self._recorder, self.sessions, self.pool, self.tasks)
        watcher.start()
        self._resources.push_async_callback(watcher.close)
        self._resources.push_async_callback(self.pool.close)
        self.pool.run(
            self.tasks,
            self.levels,
            lambda: self.sessions.registry.holding,
            self.sessions.room.check,
            self.sessions.shares.turns.quiet,
        )
        self.reload.watch(self._recorder, self.tasks)
        self.key_edits = KeyEdits(settings, self.reload, self._recorder)
        self._resources.push_async_callback(self.reload.close)
        # Before the sandboxes: a read that fails because of the shutdown is not reported to them.
        self._resources.push_async_callback(self._captures.close)

    async def _open_hooks(self) -> None:
        """What tells hosts of events, from where an earlier run ended."""
        settings = self.settings
        self.hooks = Hooks(
            settings.hooks,
            HookRules(self.keys, settings.hook_prefixes),
            self.database,
            self._recorder,
            self.followers,
            self._sealer,
            self.metrics,
            self.tasks,
            WallClock(),
        )
        self._resources.push_async_callback(self.hooks.close)
        await self.hooks.start()
        self.metrics.add(HookGauges(self.hooks))

    def _anchor(self) -> None:
        """Begins to anchor heads of chains, if the settings say so. Raises: ConfigError."""
        settings = self.settings
        if settings.anchor is None:
            return
        key = load_key(settings.anchor, settings.state_dir)
        instance = _instance(settings.state_dir / "instance")
        anchoring = Anchoring(settings.anchor, self.database, key, instance)
        anchoring.start(self.tasks)
        self._resources.push_async_callback(anchoring.close)

    def _subscribed(self) -> Subscribers:
        """The subscribers to sandbox agents' messages, in this order."""

        def learn(session: Session, hello: Hello) -> None:
            session.secrets.learn(hello.secrets)

        async def count_violation(_session: Session, _reason: str) -> None:
            self.metrics.agent_violation()

        async def record_violation(session: Session, reason: str) -> None:
            await self._recorder.record(
                session, EventDraft("agent.violation", actor="system", error=reason)
            )

        async def expire_approvals(_session: Session) -> None:
            await self.approvals.expire_ended()

        subscribers = Subscribers(self._agent_events.record)
        subscribers.on_event(self.executions.on_exit, "command.exit")
        subscribers.on_event(self.terminals.on_exit, "pty.exit")
        # The session's secrets first, because the others' reports are searched for them.
        subscribers.on_hello(learn)
        subscribers.on_hello(self.executions.on_hello)
        subscribers.on_hello(self.terminals.on_hello)
        subscribers.on_violation(count_violation)
        subscribers.on_violation(record_violation)
        # Approvals of a terminal end after it.
        subscribers.on_gone(self.terminals.on_gone)
        subscribers.on_end(expire_approvals)
        return subscribers

    def _on_full(self, session: Session) -> None:
        """Ends what runs in a session about which nothing more may be recorded."""
        self.executions.on_full(session)
        self.terminals.on_full(session)

    async def _expire_approvals(self, session: Session, terminal_id: str, reason: str) -> None:
        """Expires the approvals of a terminal that has ended."""
        await self.approvals.expire(session, terminal_id, f"the terminal has ended: {reason}")

    def _announcer(self) -> Callable[[Approval], None]:
        """The function that sends new approvals to the operator's webhook, if there is one."""
        url, secret = self.settings.approval_webhook_url, self.settings.approval_webhook_secret
        if url is None or secret is None:
            return lambda approval: None
        webhook = Webhook(url, secret.get_secret_value())
        webhook.start(self.tasks)
        self._resources.push_async_callback(webhook.close)
        return lambda approval: webhook.send(requested(approval))

    async def close(self) -> None:
        """Closes everything in reverse order; sandboxes keep running."""
        await self._resources.aclose()

    async def readiness(self) -> dict[str, Check]:
        """Whether sessions can be created and recorded: the checks by name."""
        return {check.name: check for check in await self.ready.checks()}


def _lock(state_dir: Path) -> int:
    """The state directory's lock, held until the descriptor is closed. Raises: ConfigError."""
    try:
        return directories.lock(state_dir)
    except BlockingIOError:
        raise ConfigError(f"{state_dir}: another control plane uses this directory") from None
    except OSError as error:
        raise ConfigError(f"{state_dir}: {error.strerror}") from None


def _instance(path: Path) -> str:
    """This state directory's own id, created at first use: it marks our containers."""
    try:
        text = path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        text = secrets.token_hex(4)
        directories.write_file(path, f"{text}\n".encode())
    if not _INSTANCE.fullmatch(text):
        raise ConfigError(f"{path}: must hold 8 hex digits")
    return text

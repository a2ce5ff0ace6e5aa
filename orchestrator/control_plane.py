"""The control plane without HTTP: creates and connects every part, and closes them in order."""

import logging
import os
import re
import secrets
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from orchestrator.access.admin_key import generated_key
from orchestrator.access.key_expiry import KeyExpiry
from orchestrator.access.keys import KeyRing
from orchestrator.access.streams import Streams
from orchestrator.approvals.approval_rows import Approval
from orchestrator.approvals.service import Approvals
from orchestrator.approvals.webhook import Webhook, requested
from orchestrator.audit.anchoring import Anchoring, load_key
from orchestrator.audit.archiving import Archiving
from orchestrator.audit.events import EventDraft
from orchestrator.audit.follow import Followers
from orchestrator.audit.ledger import Ledger
from orchestrator.audit.record_room import RecordRoom
from orchestrator.audit.recorder import Recorder
from orchestrator.audit.refusal_marks import RefusalMarks
from orchestrator.audit.stop_records import StopRecords
from orchestrator.backups.restoring import settle
from orchestrator.checks.base import Check
from orchestrator.checks.readiness import Readiness
from orchestrator.commands.captures import Captures
from orchestrator.commands.execution import Executions
from orchestrator.commands.governed import GovernedCommands
from orchestrator.commands.left_evidence import remove_left
from orchestrator.config.errors import ConfigError
from orchestrator.config.preview_address import preview_address, preview_url
from orchestrator.config.settings import Settings, ensure_state_dir
from orchestrator.consume.firewall import ContextFirewall
from orchestrator.consume.refinement import Refinement
from orchestrator.egress.interception import Interception
from orchestrator.egress.key_bytes import KeyBytes
from orchestrator.egress.part import EgressPart
from orchestrator.egress.resolver import CheckedResolver, Resolver
from orchestrator.egress.service import SessionEgress
from orchestrator.engine.base import Engine
from orchestrator.engine.docker import DockerEngine
from orchestrator.engine.measured import measured
from orchestrator.fault_points import FaultPoint
from orchestrator.link.messages import Hello
from orchestrator.node.base import Node
from orchestrator.node.local import LocalNode
from orchestrator.node.resources import free_bytes
from orchestrator.observe.gauges import Gauges
from orchestrator.observe.metrics import Metrics
from orchestrator.policy.levels import Levels
from orchestrator.ports.limits import PORT_LIMITS
from orchestrator.ports.part import PortsPart
from orchestrator.ports.service import Ports
from orchestrator.reload import Reload
from orchestrator.sandboxes.allowed_images import AllowedImages
from orchestrator.sandboxes.service import Sandboxes
from orchestrator.sandboxes.shapes import cold_levels
from orchestrator.sandboxes.subscribers import Subscribers
from orchestrator.sandboxes.warm_pool import WarmPool
from orchestrator.secrets.outside import OutsideSecrets
from orchestrator.secrets.sealing import Sealer
from orchestrator.sessions.agent_events import AgentEvents
from orchestrator.sessions.budgets import Budgets
from orchestrator.sessions.file_archives import FileArchives
from orchestrator.sessions.file_requests import FileRequests
from orchestrator.sessions.files import Files
from orchestrator.sessions.kept_workspaces import KeptWorkspaces
from orchestrator.sessions.recovery import Recovered, Recovery
from orchestrator.sessions.service import Sessions
from orchestrator.sessions.session import Session
from orchestrator.sessions.watcher import Watcher
from orchestrator.sessions.workspaces import Workspaces
from orchestrator.store import directories
from orchestrator.store.database import Database
from orchestrator.store.scrubber import Scrubber
from orchestrator.tasks import Tasks
from orchestrator.terminals.governed import GovernedTerminals
from orchestrator.terminals.service import Terminals
from orchestrator.threads import bounded

log = logging.getLogger(__name__)

# A restoration that was interrupted is completed; archives elsewhere are copied.
_SETTLE_SECONDS = 600.0
_INSTANCE = re.compile(r"[0-9a-f]{8}")


class ControlPlane:
    """One instance: `open` it, serve with its parts, `close` it. Sandboxes outlive it."""

    settings: Settings
    keys: KeyRing
    levels: Levels
    reload: Reload
    ready: Readiness
    database: Database
    ledger: Ledger
    followers: Followers
    streams: Streams
    node: Node
    images: AllowedImages
    ports: Ports
    engine: Engine
    pool: WarmPool
    sessions: Sessions
    executions: Executions
    egress: SessionEgress
    files: Files
    terminals: Terminals
    tools: GovernedTerminals
    governed_commands: GovernedCommands
    approvals: Approvals
    archiving: Archiving
    recovered: Recovered
    refinement: Refinement

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        # Where clients reach open ports; None: nowhere.
        self.preview_url = preview_url(settings, preview_address(settings))
        self.metrics = Metrics()
        self.tasks = Tasks(self.metrics.task_restarted)
        self._resources = AsyncExitStack()

    @classmethod
    async def open(
        cls, settings: Settings, engine: Engine | None = None, resolver: Resolver | None = None
    ) -> Self:
        """Locks the state directory, opens everything, and takes over what an earlier run left.

        `engine` and `resolver` are for tests; None: the Docker engine of the settings, and this
        host's name servers. Raises: ConfigError,
        StoreError, StorageError, EngineUnavailableError, AuditUnavailableError.
        """
        self = cls(settings)
        try:
            await self._open(engine, resolver)
        except BaseException:
            await self.close()
            raise
        return self

    async def _open(self, engine: Engine | None, resolver: Resolver | None) -> None:
        settings = self.settings
        ensure_state_dir(settings.state_dir)
        lock = _lock(settings.state_dir)
        self._resources.callback(os.close, lock)
        FaultPoint.START_LOCKED.reached()
        await bounded(lambda: settle(settings), _SETTLE_SECONDS)
        self.reload = Reload(settings)
        self.levels, self.keys = self.reload.levels, self.reload.keys
        for name in cold_levels(settings.warm_least, self.levels):
            log.warning("warm_least: sandboxes of level %s can't be started ahead", name)
        expiry = KeyExpiry(self.keys)
        self._resources.callback(expiry.close)
        expiry.start()
        self.database = await Database.open(settings.state_dir / "paddock.db")
        self._resources.push_async_callback(self.database.close)
        scrubber = Scrubber(self.database, self.tasks)
        self._resources.push_async_callback(scrubber.close)
        scrubber.start()
        self.ledger = Ledger(self.database)
        self._resources.push_async_callback(self.ledger.close)
        engine = engine or DockerEngine(
            _instance(settings.state_dir / "instance"),
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
        self.ready = Readiness(settings, node, self.database, self.reload, self.tasks)
        room = RecordRoom(
            self.keys,
            settings.key_limits,
            settings.min_free_disk_bytes,
            lambda: free_bytes(settings.state_dir),
        )
        await room.load(self.database)
        marks = RefusalMarks(self.database)
        recorder = Recorder(self.ledger, self.metrics, room, self._on_full, marks)
        self._resources.push_async_callback(recorder.close)
        # Sessions are built from the others; their ends are handled only once everything exists.
        stops = StopRecords()
        self._resources.push_async_callback(stops.close)
        budgets = Budgets(
            recorder, stops, self.metrics, lambda session: self.sessions.expire(session)
        )
        agent_events = AgentEvents(recorder, budgets)
        self._resources.push_async_callback(agent_events.close)
        self.secrets = OutsideSecrets(
            self.database, recorder, self.reload.secrets, Sealer(settings.state_dir)
        )
        await self.secrets.load()
        self.executions = Executions(recorder, self.metrics, budgets, self.secrets.variables)
        self._resources.push_async_callback(self.executions.close)
        firewall = ContextFirewall(
            recorder, lambda session, error, then: self.sessions.miss(session, error, then)
        )
        self._resources.push_async_callback(firewall.close)
        file_requests = FileRequests(recorder, firewall)
        self.files = Files(file_requests)
        self.file_archives = FileArchives(file_requests)
        self.approvals = Approvals(self.database, self.ledger, recorder, self._announcer())
        self.terminals = Terminals(
            self.database, recorder, budgets, settings.state_dir, self._expire_approvals
        )
        captures = Captures(self.files, self.executions, recorder, settings.state_dir / "evidence")
        self.governed_commands = GovernedCommands(
            self.reload.tools, self.keys, recorder, self.executions, self.approvals, captures
        )
        self.tools = GovernedTerminals(
            self.reload.tools, self.keys, self.terminals, self.approvals, self.files, recorder
        )
        self._resources.push_async_callback(self.tools.close)
        subscribers = self._subscribers(agent_events, recorder)
        subscribers.on_event(firewall.on_miss, "read")
        self.key_bytes = KeyBytes(self.keys, settings.key_limits)
        await self.key_bytes.load(self.database)
        interception = Interception(settings.state_dir, settings.ca_file)
        way_out = EgressPart(
            node,
            recorder,
            budgets,
            resolver or CheckedResolver(),
            interception,
            self.secrets,
            self.key_bytes,
        )
        self._resources.push_async_callback(way_out.shut_down)
        subscribers.on_gone(way_out.settle)
        self.egress = SessionEgress(recorder, stops)
        secret = generated_key(settings.state_dir / "preview.key")
        self.ports = Ports(self.database, recorder, stops, self.keys, secret, PORT_LIMITS)
        self._resources.push_async_callback(self.ports.shut_down)
        subscribers.on_end(self.ports.ended)
        ways = (way_out, PortsPart(node, PORT_LIMITS))
        workspaces = Workspaces(settings, self.database, node.storage)
        sandboxes = Sandboxes(
            *(settings, node, self.ledger, workspaces, subscribers, ways, self.metrics)
        )
        self._resources.push_async_callback(sandboxes.close)
        self.pool = sandboxes.pool
        self.sessions = Sessions(
            settings,
            self.levels,
            self.reload.images,
            self.database,
            node,
            recorder,
            self.executions,
            sandboxes,
            workspaces,
            budgets,
            stops,
            scrubber.want,
            self.metrics,
        )
        self.streams = Streams(settings.session_max_streams, settings.key_max_streams)
        self.followers = Followers(self.ledger, self.database, self.sessions.registry.owner)
        self.metrics.add(
            Gauges(self.sessions, self.levels, self.ledger, node, self.pool, self.key_bytes)
        )
        self._resources.push_async_callback(self.sessions.shut_down)
        recovery = Recovery(
            settings,
            self.database,
            self.engine,
            recorder,
            self.executions,
            sandboxes,
            workspaces,
            self.sessions,
            firewall,
            scrubber.want,
        )
        self.refinement = Refinement(self.database, workspaces)
        self.recovered = await recovery.run()
        kept = KeptWorkspaces(workspaces, settings.workspace_retention, self.tasks)
        kept.start()
        self._resources.push_async_callback(kept.close)
        await self.terminals.recover(self.sessions.registry.all)
        self._resources.push_async_callback(self.terminals.shut_down)
        await self.ports.recover(self.sessions.registry.all)
        await self.secrets.recover(self.sessions.registry.all)
        await remove_left(self.database, settings.state_dir / "evidence")
        await self.approvals.recover()
        self.archiving = Archiving(
            self.database,
            self.ledger,
            settings.archive_path,
            settings.state_dir / "evidence",
            room.add,
            room.check_disk,
        )
        self.archiving.start(settings.audit_retention, self.tasks)
        self._resources.push_async_callback(self.archiving.close)
        self._anchor()
        watcher = Watcher(self.engine, recorder, self.sessions, self.pool, self.tasks)
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
        self.reload.watch(recorder, self.tasks)
        self._resources.push_async_callback(self.reload.close)
        # Before the sandboxes: a read that fails because of the shutdown is not reported to them.
        self._resources.push_async_callback(captures.close)

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

    def _subscribers(self, events: AgentEvents, recorder: Recorder) -> Subscribers:
        """The subscribers to sandbox agents' messages, in this order."""

        def learn(session: Session, hello: Hello) -> None:
            session.secrets.learn(hello.secrets)

        async def count_violation(_session: Session, _reason: str) -> None:
            self.metrics.agent_violation()

        async def record_violation(session: Session, reason: str) -> None:
            await recorder.record(
                session, EventDraft("agent.violation", actor="system", error=reason)
            )

        async def expire_approvals(_session: Session) -> None:
            await self.approvals.expire_ended()

        subscribers = Subscribers(events.record)
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

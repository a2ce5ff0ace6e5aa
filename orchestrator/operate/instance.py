"""The parts of an instance by their names, for whatever serves it."""

from dataclasses import fields

from orchestrator.cluster.base import ClusterUsage
from orchestrator.cluster.open import ClusterFloor
from orchestrator.cluster.outbox import Outbox
from orchestrator.ground.clock_changes import ClockChanges
from orchestrator.ground.loop_lag import LoopLag
from orchestrator.ground.metrics import Metrics
from orchestrator.ground.open import GroundFloor
from orchestrator.ground.store.database import Database
from orchestrator.ground.tasks import Tasks
from orchestrator.ground.threads import Aside
from orchestrator.ground.traces.spans import BeginSpan
from orchestrator.host.engine.base import Engine
from orchestrator.host.engine.runtimes import Runtimes
from orchestrator.host.node.base import Node
from orchestrator.host.open import HostFloor
from orchestrator.operate.checks.readiness import Readiness
from orchestrator.operate.hooks.hooks import Hooks
from orchestrator.operate.moves.draining import Draining
from orchestrator.operate.moves.mover import Mover
from orchestrator.operate.moves.receiver import Receiver
from orchestrator.operate.observe.usage import UsageHistory
from orchestrator.operate.open import OperateFloor
from orchestrator.operate.operator.key_edits import KeyEdits
from orchestrator.operate.operator.reload import Reload
from orchestrator.operate.privacy.owner_requests import OwnerRequests
from orchestrator.operate.snapshots.snapshots import Snapshots
from orchestrator.operate.templates.templates import Templates
from orchestrator.operate.templates.warm_templates import WarmTemplates
from orchestrator.operate.users.ending import UserEnding
from orchestrator.programs.open import ProgramsFloor
from orchestrator.programs.spawning.forks import Forks
from orchestrator.programs.spawning.spawned_runs import SpawnedRuns
from orchestrator.programs.spawning.spawning import Spawning
from orchestrator.programs.turns.host_tools import HostTools
from orchestrator.programs.turns.session_turns import SessionTurns
from orchestrator.record.audit.archiving import Archiving
from orchestrator.record.audit.followers import Followers
from orchestrator.record.audit.glass_accesses import GlassAccesses
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.verifier import Verifier
from orchestrator.record.open import RecordFloor
from orchestrator.record.search_index.search_index import SearchIndex
from orchestrator.record.secrets.proxy_secrets import ProxySecrets
from orchestrator.rules.access.break_glass import BreakGlass
from orchestrator.rules.access.keys import KeyRing
from orchestrator.rules.access.last_uses import LastUses
from orchestrator.rules.oidc.sign_in import SignIn
from orchestrator.rules.open import RulesFloor
from orchestrator.rules.policy.levels import Levels
from orchestrator.rules.policy.policy_files import SessionPolicies
from orchestrator.sandbox.egress.key_bytes import KeyBytes
from orchestrator.sandbox.egress.session_egress import SessionEgress
from orchestrator.sandbox.named_snapshots.named_snapshots import NamedSnapshots
from orchestrator.sandbox.open import SandboxFloor
from orchestrator.sandbox.ports.open_ports import Ports
from orchestrator.sandbox.sandboxes.allowed_images import AllowedImages
from orchestrator.sandbox.sandboxes.session_sandboxes import Sandboxes
from orchestrator.sandbox.sandboxes.warm_pool import WarmPool
from orchestrator.sandbox.volumes.volumes import Volumes
from orchestrator.sessions.in_cluster.capacity import NodeCapacity
from orchestrator.sessions.open import SessionsFloor
from orchestrator.sessions.refinement import Refinement
from orchestrator.sessions.sessions import Sessions
from orchestrator.sessions.shares import Streams
from orchestrator.sessions.tickets import Tickets
from orchestrator.work.approvals.approvals import Approvals
from orchestrator.work.code.cells import Cells
from orchestrator.work.code.contexts import Contexts
from orchestrator.work.commands.execution import Executions
from orchestrator.work.commands.governed_commands import GovernedCommands
from orchestrator.work.commands.recorded_commands import RecordedCommands
from orchestrator.work.files.file_archives import FileArchives
from orchestrator.work.files.file_trees import FileTrees
from orchestrator.work.files.files import Files
from orchestrator.work.memory.memory import Memory
from orchestrator.work.models.models import Models
from orchestrator.work.open import WorkFloor
from orchestrator.work.proposals.proposals import Proposals
from orchestrator.work.shells.kept_shells import KeptShells
from orchestrator.work.terminals.governed_terminals import GovernedTerminals
from orchestrator.work.terminals.session_tools import SessionTools
from orchestrator.work.terminals.shells import Shells
from orchestrator.work.terminals.terminals import Terminals

Floor = (
    GroundFloor
    | HostFloor
    | RulesFloor
    | ClusterFloor
    | RecordFloor
    | SandboxFloor
    | WorkFloor
    | SessionsFloor
    | ProgramsFloor
    | OperateFloor
)


class Instance:
    """What the floors offer to whatever serves the instance, under the names that they use."""

    clock: ClockChanges
    lag: LoopLag
    metrics: Metrics
    tasks: Tasks
    aside: Aside
    database: Database

    engine: Engine
    node: Node
    runtimes: Runtimes

    outbox: Outbox
    cluster_usage: ClusterUsage

    levels: Levels
    keys: KeyRing
    glass: BreakGlass
    last_uses: LastUses
    sign_in: SignIn
    user_ending: UserEnding
    session_policies: SessionPolicies

    ledger: Ledger
    search_index: SearchIndex
    verifier: Verifier
    secrets: ProxySecrets

    images: AllowedImages
    key_bytes: KeyBytes
    egress: SessionEgress
    ports: Ports
    volumes: Volumes
    named_snapshots: NamedSnapshots
    sandboxes: Sandboxes
    pool: WarmPool

    memory: Memory
    models: Models
    executions: Executions
    recorded_commands: RecordedCommands
    contexts: Contexts
    cells: Cells
    files: Files
    file_archives: FileArchives
    file_trees: FileTrees
    approvals: Approvals
    terminals: Terminals
    governed_commands: GovernedCommands
    tools: GovernedTerminals
    session_tools: SessionTools
    shells: Shells
    kept_shells: KeptShells

    sessions: Sessions
    proposals: Proposals
    refinement: Refinement
    tickets: Tickets
    accesses: GlassAccesses
    streams: Streams
    followers: Followers
    node_capacity: NodeCapacity

    host_tools: HostTools
    spawning: Spawning
    spawned_runs: SpawnedRuns
    forks: Forks
    turns: SessionTurns

    reload: Reload
    ready: Readiness
    snapshots: Snapshots
    mover: Mover
    receiver: Receiver
    draining: Draining
    templates: Templates
    warm_templates: WarmTemplates
    archiving: Archiving
    owner_requests: OwnerRequests
    usage: UsageHistory
    key_edits: KeyEdits
    hooks: Hooks
    begin_span: BeginSpan | None

    def _offer(self, *floors: Floor) -> None:
        """Takes the parts of open floors."""
        offered = Instance.__annotations__
        for floor in floors:
            for field in fields(floor):
                if field.name in offered:
                    setattr(self, field.name, getattr(floor, field.name))

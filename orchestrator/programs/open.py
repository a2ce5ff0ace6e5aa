"""Opens the floor of programs: turns, runs in children, and questions of commands."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from orchestrator.ground.events import EventDraft
from orchestrator.ground.metrics import Metrics
from orchestrator.ground.open import GroundFloor
from orchestrator.host.link.messages import Hello
from orchestrator.host.open import HostFloor
from orchestrator.programs.questions.questions import Questions
from orchestrator.programs.questions.questions_part import QuestionsPart
from orchestrator.programs.spawning.forks import Forks
from orchestrator.programs.spawning.spawned_runs import SpawnedRuns
from orchestrator.programs.spawning.spawning import Spawning
from orchestrator.programs.turns.host_tools import HostTools
from orchestrator.programs.turns.operations.context import Services
from orchestrator.programs.turns.rollbacks import TurnRollbacks
from orchestrator.programs.turns.session_turns import SessionTurns
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.open import RecordFloor
from orchestrator.rules.open import RulesFloor
from orchestrator.sandbox.open import SandboxFloor
from orchestrator.sessions.open import SessionsFloor
from orchestrator.settings.settings import Settings
from orchestrator.state.session import Session
from orchestrator.work.commands.left_evidence import remove_left
from orchestrator.work.open import WorkFloor


@dataclass(frozen=True, slots=True)
class ProgramsFloor:
    """What runs on behalf of sessions, outside of their sandboxes."""

    host_tools: HostTools
    rollbacks: TurnRollbacks
    spawning: Spawning
    spawned_runs: SpawnedRuns
    forks: Forks
    turns: SessionTurns


def open_programs(
    settings: Settings,
    ground: GroundFloor,
    host: HostFloor,
    rules: RulesFloor,
    record: RecordFloor,
    sandbox: SandboxFloor,
    work: WorkFloor,
    floor: SessionsFloor,
) -> ProgramsFloor:
    """Opens the floor; no turn runs before `recover_programs`."""
    sessions, proposals = floor.sessions, floor.proposals
    host_tools = HostTools(record.recorder, settings.tool_urls)
    rollbacks = TurnRollbacks(proposals)
    spawning = Spawning(rules.keys, rules.levels, rules.session_policies, record.recorder, sessions)
    spawned_runs = SpawnedRuns(spawning, sessions)
    services = Services(
        *(work.files, work.file_trees, work.executions, work.models),
        proposals.for_program,
        rollbacks.roll_back,
        sessions.suspensions.using,
        work.memory,
        work.governed_commands,
        work.tools,
        work.terminals,
        work.session_tools,
        host_tools,
        spawned_runs.run,
        *(work.kept_shells, work.contexts, work.cells),
    )
    turns = SessionTurns(ground.database, record.recorder, record.budgets, services, ground.lag)
    spawned_runs.run_in(turns)
    questions = Questions(turns.running_number, proposals.for_program)
    sandbox.sandboxes.add(QuestionsPart(host.node, questions))
    _subscribe(ground.metrics, record.recorder, sandbox, work, turns)
    forks = Forks(
        *(sessions.creation, sandbox.named_snapshots, ground.database, record.recorder),
        *(sessions.shares, sessions.deadlines),
    )
    return ProgramsFloor(host_tools, rollbacks, spawning, spawned_runs, forks, turns)


def _subscribe(
    metrics: Metrics,
    recorder: Recorder,
    sandbox: SandboxFloor,
    work: WorkFloor,
    turns: SessionTurns,
) -> None:
    """Subscribes to sandbox agents' messages. Subscribers are called in this order."""

    def learn(session: Session, hello: Hello) -> None:
        session.secrets.learn(hello.secrets)

    async def count_violation(_session: Session, _reason: str) -> None:
        metrics.agent_violation()

    async def record_violation(session: Session, reason: str) -> None:
        await recorder.record(session, EventDraft("agent.violation", actor="system", error=reason))

    async def expire_approvals(_session: Session) -> None:
        await work.approvals.expire_ended()

    # When nothing more may be recorded about a session, what runs in it ends.
    recorder.on_full(work.executions.on_full)
    recorder.on_full(work.terminals.on_full)
    subscribers = sandbox.subscribers
    subscribers.on_event(work.executions.on_exit, "command.exit")
    subscribers.on_event(work.terminals.on_exit, "pty.exit")
    subscribers.on_event(sandbox.firewall.on_miss, "read")
    # The session's secrets are learnt first, because the others' reports are searched for them.
    subscribers.on_hello(learn)
    subscribers.on_hello(work.executions.on_hello)
    subscribers.on_hello(work.terminals.on_hello)
    subscribers.on_violation(count_violation)
    subscribers.on_violation(record_violation)
    # Approvals of a terminal end after it.
    subscribers.on_gone(work.terminals.on_gone)
    subscribers.on_gone(turns.on_gone)
    subscribers.on_gone(sandbox.way_out.settle)
    subscribers.on_end(expire_approvals)
    subscribers.on_end(sandbox.ports.ended)


async def recover_programs(
    settings: Settings,
    ground: GroundFloor,
    record: RecordFloor,
    sandbox: SandboxFloor,
    work: WorkFloor,
    floor: SessionsFloor,
    programs: ProgramsFloor,
    closers: AsyncExitStack,
) -> None:
    """Takes over what an earlier run left in the sessions that were taken over.

    Raises: AuditUnavailableError, StoreError.
    """
    registry = floor.sessions.registry
    await programs.turns.recover(registry.all)
    closers.push_async_callback(programs.rollbacks.drain)
    closers.push_async_callback(programs.spawned_runs.shut_down)
    closers.push_async_callback(programs.forks.close)
    closers.push_async_callback(programs.turns.shut_down)
    await sandbox.ports.recover(registry.all)
    await record.secrets.recover([*registry.all, *floor.sessions.moves.arrivals.sessions])
    await remove_left(ground.database, settings.state_dir / "evidence")
    await work.approvals.recover()

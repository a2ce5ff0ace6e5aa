"""Opens the floor of work: commands, files, terminals, tools and their approvals."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from orchestrator.cluster.shared import SharedDatabase
from orchestrator.ground.open import GroundFloor
from orchestrator.record.open import RecordFloor
from orchestrator.rules.open import RulesFloor
from orchestrator.sandbox.open import SandboxFloor
from orchestrator.settings.settings import Settings
from orchestrator.state.session import Session
from orchestrator.work.approvals.approvals import Approvals
from orchestrator.work.code.cells import Cells
from orchestrator.work.code.contexts import Contexts
from orchestrator.work.commands.captures import Captures
from orchestrator.work.commands.execution import Executions
from orchestrator.work.commands.governed_commands import GovernedCommands
from orchestrator.work.commands.recorded_commands import RecordedCommands
from orchestrator.work.files.file_archives import FileArchives
from orchestrator.work.files.file_requests import FileRequests
from orchestrator.work.files.file_trees import FileTrees
from orchestrator.work.files.files import Files
from orchestrator.work.memory.memory import Memory
from orchestrator.work.memory.memory_store import OwnMemory
from orchestrator.work.memory.shared_memory import SharedMemory
from orchestrator.work.models.models import Models
from orchestrator.work.shells.kept_shells import KeptShells
from orchestrator.work.shells.shell_runs import ShellRuns
from orchestrator.work.terminals.governed_terminals import GovernedTerminals
from orchestrator.work.terminals.session_tools import SessionTools
from orchestrator.work.terminals.shells import Shells
from orchestrator.work.terminals.terminals import Terminals


@dataclass(frozen=True, slots=True)
class WorkFloor:
    """What works in sandboxes, and for them. `tools` are those that are terminals."""

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
    captures: Captures
    governed_commands: GovernedCommands
    tools: GovernedTerminals
    session_tools: SessionTools
    shells: Shells
    kept_shells: KeptShells


def open_work(
    settings: Settings,
    ground: GroundFloor,
    rules: RulesFloor,
    record: RecordFloor,
    sandbox: SandboxFloor,
    shared: SharedDatabase | None,
    closers: AsyncExitStack,
) -> WorkFloor:
    """Opens what sessions do in their sandboxes."""
    recorder, tool_rules, keys = record.recorder, rules.tool_rules, rules.keys
    models = Models(settings.models)
    closers.push_async_callback(models.close)
    executions = Executions(
        *(recorder, ground.metrics, record.budgets, record.secrets.variables),
        *(settings.mounts, ground.aside),
    )
    closers.push_async_callback(executions.close)
    contexts = Contexts(recorder, executions)
    cells = Cells(ground.database, recorder, record.budgets, executions, contexts)
    # Before the commands: it waits for sessions that are being ended, and with them their commands.
    closers.push_async_callback(sandbox.firewall.close)
    file_requests = FileRequests(recorder, sandbox.firewall)
    files = Files(file_requests)
    approvals = Approvals(ground.database, record.ledger, recorder)

    async def expire_approvals(session: Session, terminal_id: str, reason: str) -> None:
        """Expires the approvals of a terminal that has ended."""
        await approvals.expire(session, terminal_id, f"the terminal has ended: {reason}")

    terminals = Terminals(
        ground.database, recorder, record.budgets, settings.state_dir, expire_approvals
    )
    captures = Captures(files, recorder, settings.state_dir / "evidence")
    tools = GovernedTerminals(tool_rules, keys, terminals, approvals, files, recorder)
    closers.push_async_callback(tools.close)
    shells = Shells(keys, rules.glass, terminals, recorder)
    closers.callback(shells.close)
    runs = ShellRuns(terminals, recorder, record.budgets)
    closers.push_async_callback(runs.close)
    return WorkFloor(
        Memory(OwnMemory(ground.database) if shared is None else SharedMemory(shared), recorder),
        models,
        executions,
        RecordedCommands(ground.database),
        contexts,
        cells,
        files,
        FileArchives(file_requests),
        FileTrees(file_requests, ground.aside),
        approvals,
        terminals,
        captures,
        GovernedCommands(tool_rules, keys, recorder, executions, approvals, captures),
        tools,
        SessionTools(tool_rules, keys),
        shells,
        KeptShells(terminals, recorder, runs),
    )

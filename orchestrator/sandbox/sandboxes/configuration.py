"""The configuration that a sandbox agent receives after its hello, with its pack. Pure."""

from orchestrator.rules.policy.levels import ROOT, Level
from orchestrator.sandbox.packs.baseline import baseline
from orchestrator.sandbox.sandboxes.parts import Plan
from orchestrator.sandbox.sandboxes.workspace_paths import moved, moved_value
from orchestrator.state.pack import Pack, PackFile
from orchestrator.state.session import MAX_RUNNING
from paddock.contract.pack_form import WORKSPACE, ToolClass
from paddock.contract.words import Kind
from sandbox_agent.decide.protocol import Configuration, Message

# The container's processes that are not the session's: the agent, its forwarder and what finds the
# programs of connections, a guard for each command, and the agent's file workers. In a session with
# a pack, each guard has a broker.
_OWN_PROCESSES = 1 + 2 + MAX_RUNNING + 8
_BROKERS = MAX_RUNNING


def configuration_of(plan: Plan, pip_index: str | None = None) -> Message:
    """The `configure` request. `pip_index` is the index that pip uses, if there is a network."""
    configuration = _configuration(plan, pip_index)
    members = configuration._asdict()
    without, mounts = list(members.pop("without")), members.pop("mounts")
    root = members.pop("root")
    return {
        **members,
        "confinement": configuration.confinement._asdict(),
        "writable": list(configuration.writable),
        "volumes": list(configuration.volumes),
        "consume": consume_of(plan.session.pack, plan.level),
        **({"without": without} if without else {}),
        **({"mounts": mounts} if mounts else {}),
        **({"root": root} if root else {}),
    }


def _configuration(plan: Plan, pip_index: str | None) -> Configuration:
    level, limits, budget = plan.level, plan.limits, plan.session.budget
    terms, mounts = plan.session.terms, plan.mounts.values()
    targets = [*(mount.target for mount in mounts), *terms.volume_paths]
    writable = (mount.target for mount in mounts if not mount.read_only)
    confinement, workspace = level.confinement, plan.session.workspace_path
    own_processes = _OWN_PROCESSES + (_BROKERS if plan.session.pack is not None else 0)
    return Configuration(
        level=level.name,
        uid=plan.session.workspace.uid,
        commands=None if level.commands is None else sorted(level.commands),
        environment=None if level.environment is None else list(level.environment),
        confinement=confinement._replace(
            read=[*(moved(path, workspace) for path in confinement.read), *targets],
            execute=[moved(path, workspace) for path in confinement.execute],
        ),
        home=moved(level.home, workspace),
        cpus=limits.cpus,
        memory_bytes=limits.memory_bytes,
        processes=max(8, limits.pids - own_processes),
        output_bytes=level.output_bytes,
        max_running=MAX_RUNNING,
        cpu_used_us=budget.own(Kind.CPU_SECONDS),
        cpu_budget_us=budget.own_limit(Kind.CPU_SECONDS),
        output_used_bytes=budget.own(Kind.OUTPUT_BYTES),
        output_budget_bytes=budget.own_limit(Kind.OUTPUT_BYTES),
        writable=(*writable, *terms.written_volumes, *level.layer),
        volumes=terms.volume_paths,
        workspace=workspace,
        guard_writes=level.guard_writes,
        egress=level.network == "egress",
        variables={**plan.variables, **_variables(level, pip_index, workspace)},
        without=level.requires.without,
        mounts=plan.flags,
        root=level.user == ROOT,
    )


def _variables(level: Level, pip_index: str | None, workspace: str) -> dict[str, str]:
    """The level's file comes first."""
    usual = {} if pip_index is None or level.network == "none" else {"PIP_INDEX_URL": pip_index}
    return usual | {name: moved_value(value, workspace) for name, value in level.variables}


def consume_of(pack: Pack | None, level: Level) -> Message | None:
    """The member `consume` of the agent's configuration."""
    if pack is None:
        return None
    reads, lists = ToolClass.READ in pack.tools, bool(pack.tools)
    writes = pack.writes if ToolClass.WRITE in pack.tools else ()
    return {
        "manifest_id": pack.manifest_id,
        "entries": [relative(path) for path in pack.files] if reads else [],
        "directories": sorted(map(relative, pack.directories)) if lists else [],
        "writes": [relative(path) for path in writes],
        "baseline": list(baseline(level)),
        "firewall_mode": pack.mode,
        "digests": [_digest(file) for file in pack.files.values()] if reads else [],
    }


def _digest(file: PackFile) -> str:
    """The digits of its hash; empty: any content."""
    return (file.content_hash or "").removeprefix("sha256:")


def relative(path: str) -> str:
    """An absolute path in the workspace, relative to it."""
    return path.removeprefix(WORKSPACE).lstrip("/") or "."

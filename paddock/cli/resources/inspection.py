"""Shows a session to a person."""

from typing import TYPE_CHECKING

from paddock.cli.description import outcome, summary, words
from paddock.cli.output import age, print_fields, print_json, print_table, seconds, size

if TYPE_CHECKING:
    from paddock.client import Async, InspectedSession, Session


def print_new(session: "Session[Async]", as_json: bool) -> None:
    """Prints a new session with its handle, which is shown only once."""
    if as_json:
        print_json({**session.info.raw, "handle": session.handle})
        return
    level = session.info.permission_level
    print_fields((("session", session.id), ("level", level), ("handle", session.handle)))


def show(info: "InspectedSession") -> None:
    """Prints a session: its data, its usage, running commands and refusals."""
    print_fields(
        (
            ("session", info.id),
            ("status", info.status),
            ("activity", info.activity),
            ("level", info.permission_level),
            ("owner", info.owner),
            ("created", f"{age(info.created_at)} ago"),
            ("last used", f"{age(info.last_activity_at)} ago"),
            ("ends when idle", info.deadlines.raw["idle_at"]),
            ("ends at", _ends(info)),
            ("ended", _ended(info)),
            ("labels", " ".join(f"{k}={v}" for k, v in info.labels.items()) or None),
            ("metadata", " ".join(f"{k}={v}" for k, v in info.metadata.items()) or None),
            ("work", info.work_id),
            ("episode", info.episode_id),
            ("parent", info.parent),
            ("children", " ".join(info.children) or None),
            ("workspace", f"{info.workspace_path}, {info.workspace.root_dir} on the host"),
            ("volumes", _volumes(info)),
            ("sandbox", _sandbox(info)),
            ("followed by", _streams(info)),
        )
    )
    _show_use(info)
    _show_processes(info)
    if info.facilities:
        without = [each.decides for each in info.facilities if not each.provided]
        print_fields((("runtime", info.runtime), ("goes without", ", ".join(without) or None)))
        means = [(each.decides, each.detail) for each in info.facilities]
        print_table(("what", "enforced by"), means, nothing="", title="Means")
    if info.commands:
        rows = [
            (
                command.command_id,
                command.status,
                "-" if command.exit is None else seconds(command.exit.duration_ms / 1000),
                "-" if command.exit is None else outcome(command.exit.raw),
                words(command.argv),
            )
            for command in info.commands
        ]
        print_table(
            ("command", "status", ">took", "end", "argv"), rows, nothing="", title="Commands"
        )
    if info.denials:
        refused = [
            (denial.seq, age(denial.time), denial.rule, summary(denial.raw))
            for denial in info.denials
        ]
        print_table((">seq", ">age", "rule", "what"), refused, nothing="", title="Denials")


def _volumes(info: "InspectedSession") -> str | None:
    shown = (f"{use.name}:{use.path}{':ro' if use.read_only else ''}" for use in info.volumes)
    return " ".join(shown) or None


def _show_use(info: "InspectedSession") -> None:
    used, limits = info.usage, info.limits
    rows = [
        (
            "cpu",
            "-" if used is None else f"{used.cpu_percent:.0f} %",
            f"{limits.cpus * 100:.0f} %",
            "-" if used is None else f"{seconds(used.cpu_seconds)} in all",
        ),
        (
            "memory",
            "-" if used is None else size(used.memory_bytes),
            size(limits.memory_bytes),
            "-" if used is None else _share(used.memory_bytes, limits.memory_bytes),
        ),
        (
            "processes",
            "-" if used is None else str(used.pids),
            str(limits.pids),
            "-" if used is None else _share(used.pids, limits.pids),
        ),
    ]
    if info.disk is not None:
        used_bytes, limit_bytes = info.disk.used_bytes, info.disk.limit_bytes
        rows.append(("disk", size(used_bytes), size(limit_bytes), _share(used_bytes, limit_bytes)))
    print_table(("what", ">now", ">limit", "share"), rows, nothing="", title="Use")


def _show_processes(info: "InspectedSession") -> None:
    if not info.processes:
        return
    rows = [
        (
            process.pid,
            process.state,
            f"{process.cpu_percent:.0f} %",
            seconds(process.cpu_seconds),
            size(process.memory_bytes),
            words(process.argv) or process.name,
        )
        for process in info.processes
    ]
    columns = (">pid", "state", ">cpu", ">cpu time", ">memory", "argv")
    print_table(columns, rows, nothing="", title="Processes")


def _sandbox(info: "InspectedSession") -> str | None:
    sandbox = info.sandbox
    if sandbox is None:
        return None
    agent = "agent connected" if sandbox.connected else "agent not connected"
    parts = (
        *(sandbox.state, sandbox.image, f"network {sandbox.network}", agent),
        f"{sandbox.start} start",
    )
    return ", ".join(part for part in parts if part)


def _ended(info: "InspectedSession") -> str | None:
    end = info.termination
    if end is None:
        return None
    return f"{age(end.terminated_at)} ago: {end.rationale_code}"


def _ends(info: "InspectedSession") -> str | None:
    """The earlier of the deadlines that activity does not postpone."""
    moments = (info.deadlines.raw[name] for name in ("wall_at", "budget_at"))
    return min((moment for moment in moments if moment), default=None)


def _streams(info: "InspectedSession") -> str | None:
    parts = [f"{count} {kind}" for kind, count in info.streams if count]
    return ", ".join(parts) or None


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "-"

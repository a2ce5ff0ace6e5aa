"""Reads the configuration that the control plane sends. Pure."""

import posixpath
from typing import Any

from sandbox_agent.core import params as given
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.manifest import MODES, Consume
from sandbox_agent.decide.protocol import WORKSPACE_DIR, Configuration, Confinement, Message

# The uids that a session may have: commands never run as root.
_LEAST_UID = 1
_LARGEST_UID = 2**32 - 2
# Absent unless it has something, so that agents before it know every other configuration.
_OPTIONAL = frozenset({"without", "mounts", "root"})
_MOST_FLAGS = 2**32 - 1


def parse(params: Message) -> Configuration:
    """Reads a `configure` request.

    It must have all members of `Configuration` and no others; `without`, `mounts` and `root` may be
    absent.

    Raises: AgentError, which names the wrong member.
    """
    absent = _OPTIONAL - params.keys()
    members = tuple(name for name in Configuration._fields if name not in absent)
    _check_members("configure", params, members)
    confinement = given.group(params, "confinement")
    _check_members("confinement", confinement, Confinement._fields)
    return Configuration(
        level=given.text(params, "level"),
        uid=given.number(params, "uid", _LEAST_UID, _LARGEST_UID),
        commands=_texts_or_none(params, "commands"),
        environment=_texts_or_none(params, "environment"),
        confinement=Confinement(
            paths=given.flag(confinement, "paths"),
            read=given.texts(confinement, "read"),
            execute=given.texts(confinement, "execute"),
            writable_code=given.flag(confinement, "writable_code"),
            ptrace=given.flag(confinement, "ptrace"),
            record_execs=given.flag(confinement, "record_execs"),
        ),
        home=given.text(params, "home"),
        cpus=_cpus(params),
        memory_bytes=given.number(params, "memory_bytes", 1),
        processes=given.number(params, "processes", 1),
        output_bytes=given.number(params, "output_bytes"),
        max_running=given.number(params, "max_running", 1),
        cpu_used_us=given.number(params, "cpu_used_us"),
        cpu_budget_us=_number_or_none(params, "cpu_budget_us"),
        output_used_bytes=given.number(params, "output_used_bytes"),
        output_budget_bytes=_number_or_none(params, "output_budget_bytes"),
        writable=tuple(given.texts(params, "writable")),
        volumes=tuple(given.texts(params, "volumes")),
        workspace=_workspace(params),
        guard_writes=given.flag(params, "guard_writes"),
        egress=given.flag(params, "egress"),
        variables=given.mapping(params, "variables"),
        consume=_consume(params),
        without=tuple(given.texts(params, "without")) if "without" in params else (),
        mounts=_flags(params) if "mounts" in params else {},
        root=given.flag(params, "root") if "root" in params else False,
    )


def _flags(params: Message) -> dict[str, int]:
    flags = given.group(params, "mounts")
    return {place: given.number(flags, place, 0, _MOST_FLAGS) for place in flags}


def _workspace(params: Message) -> str:
    """Where the workspace is. Context packs name their files where it usually is."""
    path = given.text(params, "workspace")
    if posixpath.normpath(path) != path or not path.startswith("/") or path.strip("/") == "":
        raise AgentError("validation_error", "workspace must be an absolute, normalised path")
    if params["consume"] is not None and path != WORKSPACE_DIR:
        raise AgentError("validation_error", f"with consume, workspace must be {WORKSPACE_DIR}")
    return path


def _consume(params: Message) -> Consume | None:
    if params["consume"] is None:
        return None
    members = given.group(params, "consume")
    _check_members("consume", members, Consume._fields)
    mode = given.text(members, "firewall_mode")
    if mode not in MODES:
        raise AgentError("validation_error", f"firewall_mode must be one of {', '.join(MODES)}")
    entries, digests = given.texts(members, "entries"), given.texts(members, "digests")
    if len(entries) != len(digests):
        raise AgentError("validation_error", "digests must be as many as entries")
    return Consume(
        manifest_id=given.text(members, "manifest_id"),
        entries=tuple(entries),
        directories=tuple(given.texts(members, "directories")),
        writes=tuple(given.texts(members, "writes")),
        baseline=tuple(given.texts(members, "baseline")),
        firewall_mode=mode,
        digests=tuple(digests),
    )


def _check_members(what: str, members: dict[str, Any], expected: tuple[str, ...]) -> None:
    wrong = sorted(members.keys() ^ set(expected))
    if wrong:
        detail = f"{what} must have all of its members and no others: {wrong[0]:.64}"
        raise AgentError("validation_error", detail)


def _texts_or_none(params: Message, name: str) -> list[str] | None:
    return None if params[name] is None else given.texts(params, name)


def _number_or_none(params: Message, name: str) -> int | None:
    return None if params[name] is None else given.number(params, name)


def _cpus(params: Message) -> float:
    value = params["cpus"]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 2**16:
        raise AgentError("validation_error", "cpus must be a number of processors")
    return float(value)

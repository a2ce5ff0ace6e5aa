"""Permission levels, and explanations of their decisions."""

from dataclasses import asdict
from functools import partial
from typing import NamedTuple

from api.shape.access import ROLES, Access
from api.shape.context import Context
from api.shape.operation import operation
from api.views.facilities import facilities, runtimes
from api.views.levels import level
from api.views.policies import listed_policy, named_or_given
from orchestrator.ground.errors import PermissionDeniedError, ValidationError
from orchestrator.ground.threads import Aside
from orchestrator.host.engine.runtimes import Runtimes
from orchestrator.host.node.base import Node
from orchestrator.rules.access.keys import Role
from orchestrator.rules.policy import explanation, levels
from orchestrator.rules.policy.decision import command_field, command_size
from orchestrator.rules.policy.layers import Reaches
from orchestrator.rules.policy.policy_files import SessionPolicies
from orchestrator.rules.policy.session_policy import SessionPolicy
from orchestrator.sessions.sessions import Sessions
from orchestrator.settings.operator_mounts import writable_targets
from orchestrator.settings.settings import Settings
from paddock.contract.explanations import ExplainBody, Explanation
from paddock.contract.policies import OperationArgs
from paddock.contract.system import Level, Levels
from sandbox_agent.decide.command_words import CommandError
from sandbox_agent.decide.protocol import WORKSPACE_DIR


@operation(
    "GET",
    "/api/policies",
    Access.READ_ALL,
    tag="Policies",
    summary="List the permission levels and session policies",
    answers="The levels and policies.",
)
async def list_policies(
    context: Context,
    known: levels.Levels,
    session_policies: SessionPolicies,
    node: Node,
    engine_runtimes: Runtimes,
) -> Levels:
    """The permission levels, lowest first, and the policies that sessions may have."""
    return Levels(
        items=[_level(context, known, each, engine_runtimes) for each in known.values()],
        session_policies=[listed_policy(each) for each in session_policies.values()],
        facilities=facilities(node.kernel),
        runtimes=runtimes(engine_runtimes, known.values(), node.kernel),
        next=None,
    )


def _level(
    context: Context, known: levels.Levels, shown: levels.Level, engine_runtimes: Runtimes
) -> Level:
    """A level, and whether the caller may give it to a session."""
    caller = context.principal
    refused = caller.bounds.refuses_level(shown, known)
    allowed = refused is None and caller.role in ROLES[Access.MANAGE]
    return level(
        shown,
        allowed=allowed,
        rule=None if refused is None else refused[0],
        without_root=engine_runtimes.without_root,
    )


@operation(
    "POST",
    "/api/policies/explain",
    Access.READ,
    tag="Policies",
    summary="Explain what would be allowed",
    answers="The verdict.",
    errors=("permission_denied", "not_found"),
    examples={
        "command": {"level": "low", "command": "curl example.org"},
        "argv": {"level": "medium", "argv": ["cat", "../etc/passwd"], "cwd": "src"},
        "shell": {"level": "high", "shell": "cd a && make | tail"},
        "path": {"level": "low", "path": "/etc/passwd"},
        "operation": {
            "policy": "SAFE_EDIT",
            "operation": "world.write",
            "args": {"ref": "src/login.py"},
        },
    },
)
async def explain_policy(
    context: Context,
    aside: Aside,
    settings: Settings,
    sessions: Sessions,
    known: levels.Levels,
    session_policies: SessionPolicies,
    body: ExplainBody,
) -> Explanation:
    """Whether a command, a file path or an operation would be allowed, and what stops it.

    The answer uses only the words, at a level, or at a session's own level and by its own rules:
    only the kernel sees what a program does inside, and may stop more. Nothing is run or recorded.
    A session's handle may name only its own session.
    """
    if body.operation is not None:
        args = body.args or OperationArgs()
        explained = explanation.explain_operation(
            _policy(context, sessions, session_policies, body),
            body.operation,
            args.ref,
            args.max_tokens,
            args.network,
        )
    else:
        size = command_size(body.command, body.argv, body.shell)
        judges = _judges(context, settings, sessions, known, body)
        explained = await aside.call(size, partial(_explained, judges, body))
    shown = asdict(explained)
    return Explanation.model_validate(shown | {"layers": list(shown["layers"])})


def _policy(
    context: Context, sessions: Sessions, session_policies: SessionPolicies, body: ExplainBody
) -> SessionPolicy:
    """Raises: NotFoundError, PermissionDeniedError, ValidationError."""
    if body.session is not None:
        return sessions.finder.find(context.principal, body.session).policy
    _check_host(context)
    return session_policies.resolve(named_or_given(body.policy), "policy")


def _check_host(context: Context) -> None:
    if context.principal.role is Role.HANDLE:
        raise PermissionDeniedError("a session's handle may name its own session only")


class _Judges(NamedTuple):
    """The level, what decides about hosts, and where mounts, volumes and the workspace are."""

    level: levels.Level
    reaches: Reaches
    mounts: tuple[str, ...]
    volumes: tuple[str, ...] = ()
    workspace: str = WORKSPACE_DIR


def _judges(
    context: Context,
    settings: Settings,
    sessions: Sessions,
    known: levels.Levels,
    body: ExplainBody,
) -> _Judges:
    """Raises: NotFoundError, PermissionDeniedError."""
    listed = settings.mounts
    if body.session is not None:
        session = sessions.finder.find(context.principal, body.session)
        terms, reaches = session.terms, session.egress_rules.decide_any_port
        mounts = writable_targets(listed, (*session.level.mounts, *terms.mounts))
        mounts += (*terms.written_volumes, *session.level.layer)
        return _Judges(session.level, reaches, mounts, terms.volume_paths, session.workspace_path)
    _check_host(context)
    named = known.named(body.level or "")
    mounts = (*writable_targets(listed, named.mounts), *named.layer)
    return _Judges(named, named.egress.decide_any_port, mounts)


def _explained(judges: _Judges, body: ExplainBody) -> explanation.Explanation:
    if body.path is not None:
        return explanation.explain_path(
            judges.level, body.path, judges.mounts, judges.volumes, judges.workspace
        )
    try:
        return explanation.explain_command(
            *(judges.level, body.command, body.argv, body.cwd, judges.reaches, judges.mounts),
            shell=body.shell,
            volumes=judges.volumes,
            workspace=judges.workspace,
        )
    except CommandError as error:
        field = command_field(error, body.command)
        raise ValidationError(str(error), field=field) from None

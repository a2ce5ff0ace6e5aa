"""Makes sessions from requests: what the level, the key and the operator permit."""

import secrets
from dataclasses import replace
from datetime import datetime
from typing import Any

from orchestrator.cluster.session_ids import new_session_id
from orchestrator.ground.errors import (
    ValidationError,
)
from orchestrator.ground.events import now
from orchestrator.host.workspace.paths import validate_id
from orchestrator.rules.access.key_bounds import KeyBounds
from orchestrator.rules.access.keys import Principal
from orchestrator.rules.egress.session_egress import check_own_rules, narrowing_of
from orchestrator.rules.egress.session_rules import NO_OWN_RULES, OwnRules
from orchestrator.rules.open import RulesFloor
from orchestrator.rules.policy.levels import (
    Level,
    SessionLimits,
    clamped_limits,
    effective_limits,
)
from orchestrator.rules.policy.session_policy import SessionPolicy
from orchestrator.sandbox.sandboxes.level_images import LevelImages
from orchestrator.sandbox.sandboxes.listed_images import ListedImages
from orchestrator.sandbox.sandboxes.workspace_paths import check_path
from orchestrator.sandbox.sandboxes.workspaces import Workspaces
from orchestrator.sessions.deadlines import check_timeouts, shortest
from orchestrator.settings.operator_mounts import chosen
from orchestrator.settings.settings import Settings
from orchestrator.state.budget import Budget, limits_of
from orchestrator.state.family import Family
from orchestrator.state.requests import NewSession
from orchestrator.state.restored_session import Carried
from orchestrator.state.session import Session
from orchestrator.state.session_secrets import SessionSecrets, StoredSecrets
from orchestrator.state.starting_files import StartingFiles
from orchestrator.state.terms import Terms
from paddock.contract.words import Kind, Status
from sandbox_agent.decide.protocol import WORKSPACE_DIR
from sandbox_agent.decide.variables import INERT_PREFIX, allowed_secret, allowed_variable


class SessionMaker:
    """Makes sessions in memory. Nothing is recorded or started."""

    def __init__(
        self,
        settings: Settings,
        rules: RulesFloor,
        images: ListedImages,
        level_images: LevelImages,
        workspaces: Workspaces,
    ) -> None:
        self._settings = settings
        self._levels = rules.levels
        self._policies = rules.session_policies
        self._images = images
        self._level_images = level_images
        self._workspaces = workspaces

    async def make(self, principal: Principal, request: NewSession, handle_sha256: str) -> Session:
        """The session, which nothing else knows yet; it has no sandbox.

        Raises: ValidationError, PermissionDeniedError for what the key's entry does not allow,
        EngineUnavailableError.
        """
        child, carried = request.child, request.carried
        level = self._level(principal, request)
        permitted = self._images.choose(request.terms.image or None, principal.bounds.images, level)
        image, missing = await self._level_images.chosen(level.name, permitted)
        session_id = validate_id(request.id or new_session_id())
        terms = replace(self._terms(principal, request, level), image=image, missing_image=missing)
        created_at = now() if carried is None else carried.created_at
        workspace = self._workspaces.unclaimed(session_id, principal.name)
        if child is not None and child.origin.workspace != "own":
            workspace = child.parent.workspace
        policy = self._policies.resolve(request.policy, "policy")
        _check_volumes(terms, policy)
        session = Session(
            key=secrets.token_hex(8),
            id=session_id,
            owner=principal.name,
            status=Status.ACTIVE,
            level=level,
            terms=terms,
            limits=_limits(request, level),
            budget=_budget(request, level, created_at),
            handle_sha256=handle_sha256,
            workspace=workspace,
            root_dir=self._workspaces.root_dir(workspace.id),
            created_at=created_at,
            last_activity_at=created_at,
            policy=policy,
            episodes=0 if terms.episode_id is None else 1,
            own_rules=_own_rules(request, level),
            secrets=SessionSecrets(
                StoredSecrets.new(request.secrets), request.secrets, request.lease_id
            ),
            pack=request.consume,
            family=Family() if child is None else Family(child.origin, child.parent),
        )
        if carried is not None:
            carried.take(session)
        return session

    def _level(self, principal: Principal, request: NewSession) -> Level:
        """The level that the key permits. Raises: ValidationError, PermissionDeniedError."""
        bounds = principal.bounds
        if request.child is not None:
            level = request.child.level
        else:
            name = request.permission_level or bounds.default_level(self._levels)
            level = self._levels.named(name)
        bounds.check_level(level, self._levels)
        if request.consume is None:
            return level
        if request.terms.mounts:
            raise ValidationError("mounts can't be given with consume", field="mounts")
        if request.terms.volumes:
            raise ValidationError("volumes can't be given with consume", field="volumes")
        if request.terms.workspace_path not in (None, WORKSPACE_DIR):
            raise ValidationError(
                f"a context pack names its files below {WORKSPACE_DIR}: workspace_path can't be "
                "another with consume",
                field="workspace_path",
            )
        return level.offline()

    def _terms(self, principal: Principal, request: NewSession, level: Level) -> Terms:
        """What was asked for, with what the operator and the key choose where nothing was.

        Raises: ValidationError, PermissionDeniedError.
        """
        settings, bounds, asked = self._settings, principal.bounds, request.terms
        _check_names(request, level)
        if asked.workspace_path is not None:
            check_path(asked.workspace_path)
        chosen(settings.mounts, asked.mounts)
        terms = replace(
            asked,
            idle_timeout=asked.idle_timeout or _usual_idle(request, settings, bounds),
            wall_timeout=asked.wall_timeout or _usual_wall(settings, bounds),
            tools=bounds.tools_of_session(asked.tools),
            work_id=_work_id(request),
        )
        check_timeouts(settings, bounds, terms)
        _check_recovery(settings, request)
        return terms


def _usual_idle(request: NewSession, settings: Settings, bounds: KeyBounds) -> int:
    """The idle time-out where none is asked for: a child's is its parent's, if it may have that."""
    child = request.child
    if child is None:
        usual = settings.idle_timeout
    else:
        usual = min(child.parent.terms.idle_timeout, settings.idle_timeout_max)
    return shortest(usual, bounds.max_idle_timeout) or usual


def _usual_wall(settings: Settings, bounds: KeyBounds) -> int | None:
    usual = settings.wall_timeout or settings.wall_timeout_max
    return shortest(usual, bounds.max_wall_timeout)


def _check_recovery(settings: Settings, request: NewSession) -> None:
    """Raises: ValidationError if no other node could take the session over."""
    if request.terms.recovery != "snapshot":
        return
    given: dict[str, Any] = {"consume": request.consume, "secrets": request.secrets}
    given["volumes"] = request.terms.volumes
    why = next((f"with {name}, which no copy has" for name in given if given[name]), None)
    if settings.cluster is None:
        why = "without a cluster, because there is no other node"
    if why is not None:
        raise ValidationError(f"recovery can't be snapshot {why}", field="recovery")


def _check_volumes(terms: Terms, policy: SessionPolicy) -> None:
    """Raises: ValidationError if what is written to a volume would be no proposal."""
    if policy.world_rules.proposal_mode and not all(use.read_only for use in terms.volumes):
        raise ValidationError(
            "volumes must be read_only in a session that stages its changes", field="volumes"
        )


def _check_names(request: NewSession, level: Level) -> None:
    """Raises: ValidationError for a variable or a secret whose name the level does not allow."""
    for name in request.terms.env:
        if not allowed_variable(name, level.environment):
            raise ValidationError(f"env.{name} is not allowed at {level.name}", field="env")
    for name in request.secrets:
        if not allowed_secret(name, level.environment):
            raise ValidationError(
                f"secrets.{name} is not allowed at {level.name}: begin its name with "
                f"{INERT_PREFIX}, or have the operator add it to `environment` of the level",
                field="secrets",
            )


def _limits(request: NewSession, level: Level) -> SessionLimits:
    """A child's limits are its parent's, as far as its level permits. Raises: ValidationError."""
    limits = effective_limits if request.child is None else clamped_limits
    return limits(level, request.terms.limits)


def _budget(request: NewSession, level: Level, created_at: str) -> Budget:
    """The session's budget; a child's is already reserved in its parent's.

    Raises: ValidationError above the level's limit of recorded bytes.
    """
    if request.child is not None:
        return request.child.budget
    limits = limits_of(request.budget)
    audit_bytes = limits.setdefault(Kind.AUDIT_BYTES, level.audit_bytes)
    if audit_bytes > level.audit_bytes:
        raise ValidationError(
            f"budget.audit_bytes may be at most {level.audit_bytes} at {level.name}",
            field="budget.audit_bytes",
        )
    return Budget(datetime.fromisoformat(created_at), limits)


def _own_rules(request: NewSession, level: Level) -> OwnRules:
    """The rules of its way out besides the level's. Raises: ValidationError without a way out."""
    if request.child is not None:
        return request.child.own_rules
    if request.egress is None:
        return NO_OWN_RULES
    if level.network != "egress":
        raise ValidationError(
            f'egress needs a level with network = "egress", which {level.name} is not',
            field="egress",
        )
    own = OwnRules(only=narrowing_of(request.egress, "egress"))
    check_own_rules(level, own, only="egress")
    return own


def _work_id(request: NewSession) -> str | None:
    """The name of its work: a session with a pack has one, so that refinements are counted."""
    if request.terms.work_id is None and request.consume is not None:
        return f"work-{secrets.token_hex(8)}"
    return request.terms.work_id


def recorded_creation(
    session: Session, carried: Carried | None, files: StartingFiles | None
) -> dict[str, Any]:
    """The members of the event; `carried` is what a restored session brings along."""
    return {
        **session.terms.recorded(),
        "secrets": list(session.secrets.names),
        "mounts": [*session.level.mounts, *session.terms.mounts],
        "tools": session.terms.tools,
        "policy": session.policy.recorded(),
        **_narrowed(session),
        **_consumed(session),
        **({} if carried is None else carried.recorded()),
        **({} if files is None else files.recorded()),
        **_spawned(session),
    }


def _spawned(session: Session) -> dict[str, Any]:
    """How it was spawned, for the record; nothing if it was not."""
    origin = session.family.origin
    if origin is None:
        return {}
    return {
        "spawn_id": origin.spawn_id,
        "parent": origin.parent_id,
        "depth": origin.depth,
        "workspace": origin.workspace,
    }


def _narrowed(session: Session) -> dict[str, Any]:
    """The rules that narrow its way out, for the record; nothing if there are none."""
    own = session.own_rules
    return {} if own == NO_OWN_RULES else {"egress_only": own.recorded()["only"]}


def _consumed(session: Session) -> dict[str, Any]:
    """Its pack, for the record; nothing if there is none."""
    pack = session.pack
    if pack is None:
        return {}
    return {
        **pack.recorded(),
        "refinement_count": session.reissues,
        "profile_id": pack.profile_id,
        "entries": len(pack.files),
        "tool_allowlist": sorted(pack.tools),
        "write_allowlist": list(pack.writes),
        "shell_allowlist": list(pack.commands),
    }

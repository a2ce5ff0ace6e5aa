"""What the rules of a session say about a command, before anything of it is recorded or run."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from orchestrator.ground.errors import PermissionDeniedError, ValidationError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.threads import Aside
from orchestrator.host.workspace.paths import PATH_RULE, escape_message, inside_path
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.rules.policy.decision import check_command, command_field, command_size
from orchestrator.rules.policy.levels import Level
from orchestrator.sandbox.packs.decisions import check_command as check_packed
from orchestrator.sandbox.packs.decisions import writing
from orchestrator.settings.operator_mounts import MountList, writable_targets
from orchestrator.state.pack import Pack
from orchestrator.state.requests import ExecRequest
from orchestrator.state.session import Session
from paddock.contract.remedies import shell_remedy
from paddock.contract.words import ARGUMENT_COST, MAX_ARGUMENT_BYTES, argument_bytes
from sandbox_agent.decide.command_words import CommandError, DeniedError
from sandbox_agent.decide.variables import allowed_variable, refused_variable


class CommandRules:
    """Decides about commands; refusals are recorded."""

    def __init__(
        self,
        recorder: Recorder,
        variables: Callable[[Session], Mapping[str, str]],
        listed_mounts: MountList,
        aside: Aside,
    ) -> None:
        """`variables` are the operator's for the session's commands."""
        self._recorder = recorder
        self._variables = variables
        self._listed_mounts = listed_mounts
        self._aside = aside

    async def decide(
        self, principal: Principal, session: Session, request: ExecRequest, command_id: str
    ) -> tuple[list[str], str]:
        """The command's words and directory, if the level's rules allow it.

        Raises: ValidationError with the field, PermissionDeniedError with the rule.
        """
        level = session.level
        try:
            variables = {
                **dict(level.variables),
                **session.secrets.variables,
                **self.environment(session, request),
                **request.secrets,
            }
            listed = writable_targets(self._listed_mounts, (*level.mounts, *session.terms.mounts))
            terms = session.terms
            mounts = (*listed, *terms.written_volumes) if terms.volumes else listed
            mounts += level.layer
            volumes = terms.volume_paths if terms.volumes else ()
            argv, cwd = await self._aside.call(
                command_size(request.command, request.argv, request.shell),
                partial(
                    _checked,
                    level,
                    session.pack,
                    request,
                    variables,
                    mounts,
                    volumes,
                    session.workspace_path,
                ),
            )
        except CommandError as error:
            field = command_field(error, request.command)
            raise ValidationError(str(error), field=field) from None
        except DeniedError as error:
            line = request.command if request.shell is None else request.shell
            words = request.argv if request.argv is not None else [line or ""]
            await self._recorder.refuse(
                session,
                EventDraft(
                    "command.start",
                    actor=principal.name,
                    rule=error.rule,
                    args=described(command_id, words, request.cwd or ".", request, None),
                    error=error.message,
                    command_id=command_id,
                ),
            )
            remedy = shell_remedy(error.rule, permitted=level.commands is None)
            raise PermissionDeniedError(error.message, rule=error.rule, remedy=remedy) from None
        return argv, cwd

    def environment(self, session: Session, request: ExecRequest) -> dict[str, str]:
        """The operator's variables, the session's that its level allows, and the request's."""
        patterns = session.level.environment
        env = session.terms.env
        kept = {name: text for name, text in env.items() if allowed_variable(name, patterns)}
        return {**self._variables(session), **kept, **request.env}


def timeout_of(session: Session, request: ExecRequest) -> float | None:
    """Seconds until the command is ended. Raises: ValidationError above the level's maximum."""
    most = session.level.timeout_max
    if request.timeout is None:
        return None if request.background else session.level.timeout_default
    if not 0 < request.timeout <= most:
        raise ValidationError(
            f"timeout must be more than 0 and at most {most} seconds at level {session.level.name}",
            field="timeout",
        )
    # A whole number of seconds is recorded as one.
    return int(request.timeout) if request.timeout == int(request.timeout) else request.timeout


def _checked(
    level: Level,
    pack: Pack | None,
    request: ExecRequest,
    variables: Mapping[str, str],
    mounts: Sequence[str],
    volumes: Sequence[str],
    workspace: str,
) -> tuple[list[str], str]:
    """The words and the directory. Raises: ValidationError, CommandError, DeniedError."""
    argv, cwd = check_command(
        *(level, request.command, request.argv, request.cwd, mounts, request.shell),
        *(volumes, workspace),
    )
    if pack is not None:
        check_packed(pack, argv)
    _check_output_file(pack, request, workspace)
    _check_variables(level, request)
    _check_size(variables, request, argv)
    return argv, cwd


def _check_output_file(pack: Pack | None, request: ExecRequest, workspace: str) -> None:
    """Raises ValidationError for no file, DeniedError for one that the session may not write."""
    if request.output_file is None:
        return
    path = inside_path(request.output_file, workspace)
    if path is None:
        raise DeniedError(PATH_RULE, escape_message(request.output_file))
    if path == "." or "\0" in path:
        raise ValidationError("output_file must name a file", field="output_file")
    denial = None if pack is None else writing(pack, f"{workspace}/{path}")
    if denial is not None:
        raise DeniedError(denial.rule, denial.reason)


def _check_variables(level: Level, request: ExecRequest) -> None:
    """Raises DeniedError for a name that is not allowed at that level."""
    message = refused_variable(request.env, request.secrets, level.environment, level.name)
    if message is not None:
        raise DeniedError("environment-allowlist", message)


def _check_size(variables: Mapping[str, str], request: ExecRequest, argv: list[str]) -> None:
    """Raises ValidationError for more words and variables than a program can receive."""
    if argument_bytes(argv, variables) > MAX_ARGUMENT_BYTES:
        name = "argv"
        if request.argv is None:
            name = "command" if request.shell is None else "shell"
        raise ValidationError(
            f"{name} and the variables must have at most {MAX_ARGUMENT_BYTES} bytes together,"
            f" {ARGUMENT_COST} for each word and variable included",
            field=name,
        )


def _recorded_time(timeout: float | None) -> dict[str, int | None]:
    """A time limit on record, whose numbers are whole: in seconds, and a fraction also in ms."""
    if timeout is None or isinstance(timeout, int):
        return {"timeout": timeout}
    return {"timeout": math.ceil(timeout), "timeout_ms": milliseconds(timeout)}


def milliseconds(timeout: float) -> int:
    """A time limit as the agent gets it."""
    return math.ceil(timeout * 1000)


def described(
    command_id: str, argv: list[str], cwd: str, request: ExecRequest, timeout: float | None
) -> dict[str, Any]:
    """The recorded form of a request: names of variables without their values."""
    return {
        "command_id": command_id,
        "argv": argv,
        "cwd": cwd,
        "env": sorted(request.env),
        "secrets": sorted(request.secrets),
        "stdin_bytes": None if request.stdin is None else len(request.stdin),
        **_recorded_time(timeout),
        "background": request.background,
        # The last word is the line; that one has no secrets.
        **({} if request.shell is None else {"shell": argv[-1]}),
        **({"merge": True} if request.merge else {}),
        **({} if request.output_file is None else {"output_file": request.output_file}),
        **({} if request.tool is None else {"tool": request.tool}),
        **({} if request.approval is None else {"approval": request.approval}),
    }

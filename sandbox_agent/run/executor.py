"""Starts, feeds, signals and ends the commands of one sandbox."""

import functools
import os
from typing import Any

from sandbox_agent.core import builtin_commands
from sandbox_agent.core import params as given
from sandbox_agent.core.audit import EventBuffer
from sandbox_agent.core.loop import Loop
from sandbox_agent.core.output import STDERR, STDOUT, Output, Room, StoredOutput
from sandbox_agent.core.outputs import Outputs, Reply, event_output
from sandbox_agent.core.proxy_variables import proxy_variables
from sandbox_agent.decide import commands, variables
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.mounted_agent import PLACE
from sandbox_agent.decide.protocol import Configuration, Message
from sandbox_agent.decide.writable_places import places
from sandbox_agent.enforce.command_process import Plan
from sandbox_agent.enforce.guards.guards import Guards
from sandbox_agent.enforce.programs import PATH, find_program
from sandbox_agent.run.process import Command, Request, parse_request
from sandbox_agent.run.session_secrets import SessionSecrets
from sandbox_agent.run.work import Ready, Work

# Package managers of Debian's read it: there is no other user whom they could become.
_APT_CONFIG = f"{PLACE}/sandbox_agent/enforce/root_inside/apt.conf"


class Executor:
    """The commands of one sandbox."""

    def __init__(
        self,
        loop: Loop,
        configuration: Configuration,
        events: EventBuffer,
        work: Work,
        guards: Guards,
        secrets: SessionSecrets,
    ) -> None:
        self._loop = loop
        self._configuration = configuration
        self._workspace = configuration.workspace
        self._allowed = (
            None if configuration.commands is None else frozenset(configuration.commands)
        )
        # Where any command may run, programs that the session's user has installed are found, too,
        # after those of the image.
        own = "" if configuration.commands is not None else f":{configuration.home}/.local/bin"
        self._path = PATH + own
        self._events = events
        self._work = work
        self._guards = guards
        self._secrets = secrets
        self._facts = _facts(configuration)
        self._programs: dict[str, str] = {}
        self._running: dict[str, Command] = {}
        # Enough for the output of as many commands as may run at once.
        self.outputs = Outputs(loop, configuration.max_running * configuration.output_bytes)
        self._room = Room(configuration.memory_bytes)

    @property
    def running(self) -> list[str]:
        """Ids of the running commands."""
        return list(self._running)

    def execute(self, params: Message, reply: Reply) -> None:
        """Makes a command ready, and starts it unless it must wait for `go`. Raises: AgentError."""
        # This comes first, because secrets must be cut from the record of a refusal too.
        secrets = self._secrets.give(params.get("secrets", {}))
        command_id, argv = given.text(params, "command_id"), given.texts(params, "argv")
        self._work.check(command_id)
        cwd = self._decide(argv, given.text(params, "cwd"))
        env = self._environment(given.mapping(params, "env"), secrets)
        request = parse_request(params, self._plan(argv, cwd, env, self._output_file(params)))
        self._work.remember(command_id)
        ready = self._ready(argv, request)
        if params.get("held") is True:
            self._work.keep_ready(command_id, ready)
        else:
            ready.run()
        reply({})

    def go(self, params: Message) -> None:
        """Starts a command that waits for `go`; does nothing if there is none of that id."""
        self._work.go(given.text(params, "command_id"))

    def drop(self, params: Message) -> None:
        """Drops a command that waits for `go`."""
        self._work.drop(given.text(params, "command_id"))

    def restore(self, params: Message, reply: Reply) -> None:
        """Restores stored output of an earlier sandbox. Raises: AgentError."""
        command_id, total = given.text(params, "command_id"), given.number(params, "total")
        chunks = given.chunks(params, "chunks")
        reply({"stored": self.outputs.restore(command_id, chunks, total, self._room)})

    def absent(self, params: Message, reply: Reply) -> None:
        """Answers which of these programs the image lacks. Raises: AgentError."""
        names = given.texts(params, "names")
        reply({"absent": [name for name in names if find_program(name) is None]})

    def _decide(self, argv: list[str], cwd: str) -> str:
        """Repeats the control plane's string rules in the agent; returns the absolute directory."""
        directory = commands.normalize_cwd(cwd, self._workspace, anywhere=self._allowed is None)
        decision = commands.decide(
            argv,
            self._allowed,
            self._workspace,
            directory,
            level=self._configuration.level,
            guard_writes=self._configuration.guard_writes,
            mounts=self._configuration.writable,
            volumes=self._configuration.volumes,
        )
        if not decision.allow:
            raise AgentError("permission_denied", decision.message, decision.rule)
        return directory

    def _environment(self, requested: dict[str, str], secrets: dict[str, str]) -> dict[str, str]:
        """The command's variables; `secrets` are its own, in addition to the session's."""
        patterns = self._configuration.environment
        level = self._configuration.level
        message = variables.refused_variable(requested, secrets, patterns, level)
        if message is not None:
            raise AgentError("permission_denied", message, "environment-allowlist")
        user = "root" if self._configuration.root else "sandbox"
        apt = {"APT_CONFIG": _APT_CONFIG} if self._configuration.root else {}
        base = {
            "PATH": self._path,
            "HOME": self._configuration.home,
            "USER": user,
            "LOGNAME": user,
            "LANG": "C.UTF-8",
            **apt,
            **proxy_variables(self._configuration.egress),
            **self._configuration.variables,
        }
        return {**base, **self._secrets.variables(patterns), **requested, **secrets}

    def _program(self, name: str, env: dict[str, str]) -> str:
        """The file behind a bare name, looked up once if the image can't change."""
        if "/" in name or env["PATH"] != self._path or self._configuration.root:
            return name
        if name not in self._programs:
            found = find_program(name)
            if found is None:
                return name
            self._programs[name] = found
        return self._programs[name]

    def _plan(
        self, argv: list[str], cwd: str, env: dict[str, str], output_file: str | None
    ) -> Plan:
        guarded = self._allowed is not None or self._configuration.guard_writes
        inside = self._paths_to_resolve(argv, cwd) if guarded else []
        return Plan(
            program=self._program(argv[0], env),
            argv=commands.prepare(argv, self._allowed),
            env=env,
            cwd=_relative(cwd, self._workspace),
            inside=inside,
            workspace=self._workspace,
            writable=list(places(self._allowed, self._configuration.writable)),
            volumes=[] if self._allowed is None else list(self._configuration.volumes),
            output_file=output_file,
        )

    def _paths_to_resolve(self, argv: list[str], cwd: str) -> list[tuple[str, bool]]:
        return commands.paths_to_resolve(argv, self._allowed, self._workspace, cwd)

    def _output_file(self, params: Message) -> str | None:
        """Where the output goes. Raises: AgentError for what is not beneath the workspace."""
        if params.get("output_file") is None:
            return None
        path = commands.resolve(given.text(params, "output_file"), self._workspace)
        if not path.startswith(self._workspace + "/"):
            raise AgentError(
                "permission_denied", "output_file escapes workspace", "path-outside-workspace"
            )
        return path.removeprefix(self._workspace + "/")

    def _ready(self, argv: list[str], request: Request) -> Ready:
        """The command, ready to run. Raises: AgentError."""
        answer = builtin_commands.builtin(argv, self._allowed, self._facts)
        if answer is not None:
            if request.plan.output_file is not None:
                message = f"{argv[0]} is no program here: its output can't go to output_file"
                raise AgentError("validation_error", message)
            return Ready(functools.partial(self._end_builtin, request, answer), _nothing)
        command = self._command(request)
        return Ready(functools.partial(self._start, command), command.drop)

    def _command(self, request: Request) -> Command:
        try:
            return Command(
                self._loop,
                self._guards.take(request.plan),
                request,
                Output(
                    self._configuration.output_bytes, request.background, StoredOutput(self._room)
                ),
                self._on_progress,
                self._end,
            )
        except OSError as error:
            raise AgentError("busy", f"no room for another process: {error.strerror}") from None

    def _start(self, command: Command) -> None:
        try:
            command.go()
        except BaseException:  # such as a lack of memory: the program has not begun
            command.drop()
            raise
        self._running[command.id] = command
        self.outputs.add(command.id, command.output)
        self._work.begin(command)

    def _on_progress(self, command: Command) -> None:
        self.outputs.progress(command.id)
        self._work.printed()

    def _end(self, command: Command) -> None:
        del self._running[command.id]
        self._guards.give_back(command.tree.guard)
        result = command.result()
        output = event_output(command.output) if command.collect else None
        denied = command.tree.denied
        if denied is not None:
            message = "path escapes workspace under current permission level"
            error = f"{message}: {denied} is a symbolic link that leads out of it or nowhere"
            self._emit_exit(command.id, result, output, "path-outside-workspace", error)
        else:
            lost = (
                "its guard failed, so the whole command was killed" if command.tree.lost else None
            )
            self._emit_exit(command.id, result, output, None, lost)
        self.outputs.end(command.id, unread=command.unread and output is None)
        self._work.end(command)

    def _end_builtin(self, request: Request, answer: builtin_commands.BuiltinResult) -> None:
        output = Output(self._configuration.output_bytes, keep_tail=False)
        output.add(STDOUT, answer.stdout)
        output.add(STDERR, answer.stderr)
        self._work.add(output)
        result = {
            "exit_code": answer.exit_code,
            "signal": None,
            "timed_out": False,
            "reason": None,
            "truncated": output.cut > 0,
            "cut_bytes": output.cut,
            "stored_bytes": output.stored,
            "output_bytes": output.total,
            "leftover_killed": 0,
            "duration_us": 0,
            "cpu_us": 0,
            "max_rss_bytes": 0,
        }
        chunks = event_output(output) if request.collect else None
        self._emit_exit(request.command_id, result, chunks, None, None)
        self.outputs.add(request.command_id, output)
        self.outputs.end(request.command_id, unread=chunks is None)

    def _emit_exit(
        self,
        command_id: str,
        result: dict[str, Any],
        output: list[list[str | int]] | None,
        rule: str | None,
        error: str | None,
    ) -> None:
        self._events.emit(
            "command.exit",
            once=None if output is None else {"output": output},
            decision="deny" if rule else None,
            rule=rule,
            command_id=command_id,
            args={"command_id": command_id},
            result={**result, **self._work.totals()},
            error=error,
            duration_ms=result["duration_us"] // 1000,
        )

    def forget_callers(self) -> None:
        """Drops the waiting callers after the connection was lost."""
        self._work.drop_ready()
        self.outputs.forget_callers()
        for command in self._running.values():
            command.forget_caller()

    # Input and ending

    def _running_command(self, params: Message) -> Command:
        command_id = given.text(params, "command_id")
        command = self._running.get(command_id)
        if command is None:
            raise AgentError("not_found", f"command {command_id} does not run")
        return command

    def stdin(self, params: Message, reply: Reply) -> None:
        """Feeds a command's standard input; answers once there is room for the data."""
        data, close = given.data(params, "data"), given.flag(params, "close")
        command = self._running_command(params)
        command.feed(data, close, lambda error: reply({} if error is None else error))

    def signal(self, params: Message, reply: Reply) -> None:
        """Signals a command's process group. Raises: AgentError busy if too many signals wait."""
        number = given.number(params, "signal", 1, given.LAST_SIGNAL)
        if not self._running_command(params).send_signal(number):
            raise AgentError("busy", "earlier signals to this command are still pending: try again")
        reply({})

    def cancel(self, params: Message, reply: Reply) -> None:
        """Ends a command and its whole tree; a command that has already ended is no error."""
        command_id, reason = given.text(params, "command_id"), given.text(params, "reason")
        self._work.drop(command_id)  # a command that waits for `go` never starts
        command = self._running.get(command_id)
        if command is not None:
            command.cancel(reason)
        reply({})


def _nothing() -> None:
    """Does nothing."""


def _relative(path: str, workspace: str) -> str:
    """The normalised path relative to the workspace; a path outside stays absolute."""
    if path != workspace and not path.startswith(workspace + "/"):
        return path
    return path.removeprefix(workspace).strip("/") or "."


def _facts(configuration: Configuration) -> builtin_commands.Facts:
    found = {name: find_program(name) for name in configuration.commands or ()}
    paths = {name: path for name, path in found.items() if path is not None}
    system = os.uname()
    kernel = f"{system.sysname} {system.release}"
    return builtin_commands.Facts(
        configuration.level, "Linux", kernel, configuration.cpus, configuration.memory_bytes, paths
    )

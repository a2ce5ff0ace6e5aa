"""What a session's turns may do, operation by operation. Pure: nothing is read or done."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from orchestrator.ground.errors import PermissionDeniedError
from sandbox_agent.decide.globs import Globs

LISTS = frozenset({"world.list", "world.search"})
READS = LISTS | {"world.read", "world.fingerprint"}
WRITES = frozenset({"world.write", "world.patch", "world.delete"})
COMMANDS = frozenset({"world.run", "world.exec", "shell"})
# Everything that runs programs in the sandbox.
EXECUTIONS = COMMANDS | {"world.tool"}
CALLS = frozenset({"llm.complete", "llm.intent"})
FACTS = frozenset({"assert", "fact?", "facts"})
MEMORY = frozenset({"recall", "remember"})
HOST = frozenset({"tool.call"})
SPAWNS = frozenset({"spawn"})
EVALUATIONS = frozenset({"eval", "subeval", "memo", "fixpoint"})
# Every operation that a policy can name.
OPERATIONS = READS | WRITES | EXECUTIONS | CALLS | EVALUATIONS | FACTS | MEMORY | HOST | SPAWNS


class PolicyRefusalError(PermissionDeniedError):
    """The session's policy does not permit the operation; `rule` says which part of it."""


@dataclass(frozen=True, slots=True)
class WorldRules:
    """Which files may be read and written, and whether writes are proposals.

    `within` are the rules of an outer policy, which must permit a file as well.
    """

    read_patterns: Globs
    write_patterns: Globs
    read_only: bool
    proposal_mode: bool
    within: "WorldRules | None" = None

    def may_read(self, ref: str) -> bool:
        """Whether this path, relative to the workspace, may be read."""
        return self.read_patterns.match(ref) and (self.within is None or self.within.may_read(ref))

    def may_write(self, ref: str) -> bool:
        """Whether the patterns permit writing this path; `read_only` is another question."""
        return self.write_patterns.match(ref) and (
            self.within is None or self.within.may_write(ref)
        )

    def may_list(self, directory: str) -> bool:
        """Whether something in this directory, or itself, may be read; `.` is the workspace."""
        here = self.read_patterns.match(directory) or self.read_patterns.leads(directory)
        return here and (self.within is None or self.within.may_list(directory))


@dataclass(frozen=True, slots=True)
class LlmRules:
    """Which calls of models are permitted, and the most tokens that one may ask for."""

    allow_complete: bool
    allow_intent: bool
    max_tokens_per_call: int


@dataclass(frozen=True, slots=True)
class ExecutionRules:
    """Whether turns may run commands, use the network, and evaluate nested programs."""

    allow_shell_commands: bool
    allow_network_calls: bool
    allow_subeval: bool


@dataclass(frozen=True, slots=True)
class SessionPolicy:
    """One policy. `name` is None for one that a session has for itself.

    `approvers`: how many people must approve a line that needs it, if the level does not demand
    more. `inherited` are the names of the members that it has from the policy that it extends.
    """

    name: str | None
    allowed_operations: frozenset[str]
    denied_operations: frozenset[str]
    world_rules: WorldRules
    llm_rules: LlmRules
    execution_rules: ExecutionRules
    approvers: int = 1
    extends: str | None = field(default=None, compare=False)
    inherited: frozenset[str] = field(default=frozenset(), compare=False)

    def permits(self, operation: str) -> bool:
        """Whether the operation may be used at all. A denied one may not, even if it is allowed."""
        return operation in self.allowed_operations and operation not in self.denied_operations

    def check(
        self,
        operation: str,
        *,
        ref: str | None = None,
        max_tokens: int | None = None,
        network: bool = False,
    ) -> None:
        """Checks one operation before it is done.

        `ref` is the path that it names, relative to the workspace; None: it names none. Callers
        check each result of a list or a search by `WorldRules.may_read`. `max_tokens` is the number
        that a call of a model requests; None: the most that is permitted. `network` says that a
        command uses the network. Raises: PolicyRefusalError.
        """
        if operation not in self.allowed_operations:
            raise _refused("policy-operation", f"Operation not allowed: {operation}")
        if operation in self.denied_operations:
            raise _refused("policy-denied", f"Operation explicitly denied: {operation}")
        if operation in READS:
            self._check_read(operation, ref)
        elif operation in WRITES:
            self._check_write(ref)
        elif operation in CALLS:
            self._check_call(operation, max_tokens)
        elif operation in EXECUTIONS and not self.execution_rules.allow_shell_commands:
            raise _refused("policy-execution", "Shell commands not allowed")
        elif operation == "subeval" and not self.execution_rules.allow_subeval:
            raise _refused("policy-execution", "Nested evaluation not allowed")
        if network and not self.execution_rules.allow_network_calls:
            raise _refused("policy-execution", "Network calls not allowed")

    def check_patch(
        self, reads: Iterable[str], writes: Iterable[str], deletes: Iterable[str]
    ) -> None:
        """Checks a patch, which is what it does to each file. Raises: PolicyRefusalError.

        A hunk applies only to lines that it knows, so what it changes must be readable, too.
        """
        self.check("world.patch")
        for ref in reads:
            if not self.world_rules.may_read(ref):
                raise _refused("policy-read", f"Read not allowed: {ref}")
        for ref in writes:
            self.check("world.patch", ref=ref)
        for ref in deletes:
            self.check("world.delete", ref=ref)

    def _check_read(self, operation: str, ref: str | None) -> None:
        if ref is None:
            return
        world = self.world_rules
        if not (world.may_list(ref) if operation in LISTS else world.may_read(ref)):
            raise _refused("policy-read", f"Read not allowed: {ref}")

    def _check_write(self, ref: str | None) -> None:
        if self.world_rules.read_only:
            raise _refused("policy-read-only", "World is read-only")
        if ref is not None and not self.world_rules.may_write(ref):
            raise _refused("policy-write", f"Write not allowed: {ref}")

    def _check_call(self, operation: str, max_tokens: int | None) -> None:
        rules = self.llm_rules
        if not (rules.allow_complete if operation == "llm.complete" else rules.allow_intent):
            raise _refused("policy-llm", f"Calls of models not allowed: {operation}")
        most = rules.max_tokens_per_call
        if max_tokens is not None and max_tokens > most:
            raise _refused("policy-tokens", f"Tokens per call exceeded: {max_tokens} of {most}")

    def narrowed(self, nested: "SessionPolicy") -> "SessionPolicy":
        """The policy of a nested program that asks for `nested`: never wider than this one.

        Its writes are proposals if this policy's are, because both have the same workspace.
        """
        ours, theirs = self.llm_rules, nested.llm_rules
        mine, other = self.execution_rules, nested.execution_rules
        return SessionPolicy(
            name=nested.name,
            allowed_operations=self.allowed_operations & nested.allowed_operations,
            denied_operations=self.denied_operations | nested.denied_operations,
            world_rules=replace(
                nested.world_rules,
                read_only=self.world_rules.read_only or nested.world_rules.read_only,
                proposal_mode=self.world_rules.proposal_mode,
                within=self.world_rules,
            ),
            llm_rules=LlmRules(
                ours.allow_complete and theirs.allow_complete,
                ours.allow_intent and theirs.allow_intent,
                min(ours.max_tokens_per_call, theirs.max_tokens_per_call),
            ),
            execution_rules=ExecutionRules(
                mine.allow_shell_commands and other.allow_shell_commands,
                mine.allow_network_calls and other.allow_network_calls,
                mine.allow_subeval and other.allow_subeval,
            ),
            approvers=max(self.approvers, nested.approvers),
        )

    def rules(self) -> dict[str, Any]:
        """Its rules by the API's names, as JSON has them; one approver is not said."""
        several = {"approvers": self.approvers} if self.approvers > 1 else {}
        world, llm, execution = self.world_rules, self.llm_rules, self.execution_rules
        return {
            "allowed_operations": sorted(self.allowed_operations),
            "denied_operations": sorted(self.denied_operations),
            "world_rules": {
                "read_patterns": list(world.read_patterns.patterns),
                "write_patterns": list(world.write_patterns.patterns),
                "read_only": world.read_only,
                "proposal_mode": world.proposal_mode,
            },
            "llm_rules": {
                "allow_complete": llm.allow_complete,
                "allow_intent": llm.allow_intent,
                "max_tokens_per_call": llm.max_tokens_per_call,
            },
            "execution_rules": {
                "allow_shell_commands": execution.allow_shell_commands,
                "allow_network_calls": execution.allow_network_calls,
                "allow_subeval": execution.allow_subeval,
            },
            **several,
        }

    @property
    def sha256(self) -> str:
        """The digest of its rules: two policies with the same one permit the same."""
        text = json.dumps(self.rules(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def stored(self) -> dict[str, Any]:
        """What the store keeps of a session's policy."""
        origin = {"extends": self.extends, "inherited": sorted(self.inherited)}
        return {"name": self.name, **self.rules(), **origin}

    def recorded(self) -> dict[str, Any]:
        """Its form in the audit log, without the rules of built-in policies, which never change."""
        named = {"name": self.name, "sha256": self.sha256}
        return named if self.name in BUILT_IN else named | self.rules()

    @classmethod
    def restored(cls, values: Mapping[str, Any]) -> Self:
        """The policy that was stored."""
        world = values["world_rules"]
        return cls(
            name=values["name"],
            allowed_operations=frozenset(values["allowed_operations"]),
            denied_operations=frozenset(values["denied_operations"]),
            world_rules=WorldRules(
                Globs(world["read_patterns"]),
                Globs(world["write_patterns"]),
                world["read_only"],
                world["proposal_mode"],
            ),
            llm_rules=LlmRules(**values["llm_rules"]),
            execution_rules=ExecutionRules(**values["execution_rules"]),
            approvers=values.get("approvers", 1),
            extends=values.get("extends"),
            inherited=frozenset(values.get("inherited", ())),
        )


def _refused(rule: str, message: str) -> PolicyRefusalError:
    return PolicyRefusalError(message, rule=rule)


def _built_in(
    name: str, operations: Iterable[str], writes: Iterable[str], *, read_only: bool
) -> SessionPolicy:
    """A policy without commands: it writes nothing, or proposals."""
    return SessionPolicy(
        name=name,
        allowed_operations=frozenset(operations),
        denied_operations=COMMANDS,
        world_rules=WorldRules(Globs(["**/*"]), Globs(writes), read_only, not read_only),
        llm_rules=LlmRules(allow_complete=True, allow_intent=True, max_tokens_per_call=4000),
        execution_rules=ExecutionRules(
            allow_shell_commands=False, allow_network_calls=False, allow_subeval=True
        ),
    )


_ANALYSIS = READS | EVALUATIONS | FACTS | {"llm.complete"}
# The policy of a session that names none.
SAFE_ANALYSIS = _built_in("SAFE_ANALYSIS", _ANALYSIS, (), read_only=True)
SAFE_EDIT = _built_in(
    "SAFE_EDIT",
    _ANALYSIS | {"world.write", "world.patch"},
    ("src/**/*", "test/**/*"),
    read_only=False,
)
# Commands see every file of the workspace and write it at once, so the other operations may, too.
_EVERY_FILE = Globs(["**/*", "**/.*", "**/.*/**/*"])
# Edits and commands. What a command may do, and whether it has a network, is the level's decision.
SAFE_WORK = SessionPolicy(
    name="SAFE_WORK",
    allowed_operations=_ANALYSIS | WRITES | EXECUTIONS | MEMORY,
    denied_operations=frozenset(),
    world_rules=WorldRules(_EVERY_FILE, _EVERY_FILE, read_only=False, proposal_mode=False),
    llm_rules=SAFE_ANALYSIS.llm_rules,
    execution_rules=ExecutionRules(
        allow_shell_commands=True, allow_network_calls=True, allow_subeval=True
    ),
)
BUILT_IN: Mapping[str, SessionPolicy] = {
    "SAFE_ANALYSIS": SAFE_ANALYSIS,
    "SAFE_EDIT": SAFE_EDIT,
    "SAFE_WORK": SAFE_WORK,
}

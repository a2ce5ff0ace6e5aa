"""The operator's Cedar policies. They can only restrict what manifests and levels allow."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import cedarpy

from orchestrator.ground.config_error import ConfigError
from orchestrator.rules.tools.manifest import CedarNames
from orchestrator.settings.operator_files import files_in, read_regular

SUFFIX = ".cedar"
MAX_BYTES = 1024 * 1024
# The parser recurses. Deeper nesting or longer policies would crash the whole process.
_MAX_DEPTH = 100
_MAX_POLICY = 8192
_STRING_OR_COMMENT = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*', re.DOTALL)
_SPACING = re.compile(r"[\s,]+")
# The attributes of the resource that policies can use.
ATTRIBUTES = ("tool_name", "session_state", "interaction_count", "risk_tier", "permission_level")


class CedarFacts(NamedTuple):
    """The facts of a decision: the resource's attributes, and the session's role."""

    tool_name: str  # for example psql_session.select_query
    session_state: str
    interaction_count: int  # earlier interactions
    risk_tier: str
    permission_level: str
    role: str


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of a folder. What no policy permits, or one forbids, is denied.

    `document` is their JSON. `problem` says why there are none, and denies everything.
    """

    policies: cedarpy.PolicySet
    document: str = ""
    problem: str | None = None

    def refusal(self, tool: str, names: CedarNames | None, facts: CedarFacts) -> str | None:
        """Why the policies deny; None if they allow. Every failure denies."""
        if self.problem is not None:
            return self.problem
        if names is None:
            return "policies are in force, and the manifest has no [tool.cedar]"
        try:
            request, entities = _question(tool, names, facts)
            answer = cedarpy.is_authorized(request, self.policies, entities)
        except Exception as error:  # noqa: BLE001 - it is the evaluator's, and denies
            return f"the policies can't be evaluated: {error}"
        if answer.diagnostics.errors:
            return f"the policies can't be evaluated: {answer.diagnostics.errors[0]}"
        if answer.decision is cedarpy.Decision.Allow:
            return None
        reasons = answer.diagnostics.reasons
        return f"forbidden by {', '.join(sorted(reasons))}" if reasons else "no policy permits it"


def load_policies(directory: Path) -> Policies:
    """The policies of every `*.cedar` file in a folder. Raises: ConfigError."""
    found: dict[str, Any] = {}
    for path in policy_files(directory):
        found.update(_read(path))
    document = json.dumps({"templates": {}, "staticPolicies": found, "templateLinks": []})
    try:
        return Policies(cedarpy.PolicySet.from_json_str(document), document)
    except ValueError as error:
        raise ConfigError(f"{directory}: {error}") from None


def kept_policies(document: str | None) -> Policies:
    """The policies of a saved `document`; without a usable one, everything is denied."""
    if document is not None:
        try:
            return Policies(cedarpy.PolicySet.from_json_str(document), document)
        except ValueError:
            pass  # this version reads policies more strictly
    return Policies(
        cedarpy.PolicySet.from_str(""), problem="the policies can't be read: nothing is allowed"
    )


def policy_files(directory: Path) -> list[Path]:
    """The policy files of a folder. Raises: ConfigError if it can't be listed."""
    return files_in(directory, SUFFIX)


def _read(path: Path) -> dict[str, Any]:
    """A file's policies, whose ids name the file and their number. Raises: ConfigError."""
    try:
        data = read_regular(path, MAX_BYTES)
        if len(data) > MAX_BYTES:
            raise ConfigError(f"{path}: has more than {MAX_BYTES} bytes")
        text = data.decode()
        _check_nesting(path, text)
        document = json.loads(cedarpy.policies_to_json_str(text))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}") from None
    if document["templates"]:
        raise ConfigError(f"{path}: templates can't be used: a policy must name no ?principal")
    policies = {}
    for number, policy in enumerate(document["staticPolicies"].values(), 1):
        _check_attributes(path, number, policy)
        policies[f"{path.name}, policy {number}"] = policy
    return policies


def _check_nesting(path: Path, text: str) -> None:
    """Raises ConfigError for a policy whose parsing could exceed the stack."""
    bare = _SPACING.sub("", _STRING_OR_COMMENT.sub("", text))
    for number, policy in enumerate(bare.split(";"), 1):
        depth = deepest = 0
        for character in policy:
            depth += (character in "([{") - (character in ")]}")
            deepest = max(deepest, depth)
        if deepest > _MAX_DEPTH:
            raise ConfigError(f"{path}: policy {number}: more than {_MAX_DEPTH} brackets deep")
        if len(policy) > _MAX_POLICY:
            reason = f"has more than {_MAX_POLICY} characters besides its strings"
            raise ConfigError(f"{path}: policy {number}: {reason}")


def _check_attributes(path: Path, number: int, policy: dict[str, Any]) -> None:
    for variable, attribute in _attributes(policy.get("conditions", [])):
        if variable != "resource":
            raise ConfigError(f"{path}: policy {number}: {variable} has no attributes")
        if attribute not in ATTRIBUTES:
            known = ", ".join(ATTRIBUTES)
            raise ConfigError(
                f"{path}: policy {number}: resource.{attribute} is not one of {known}"
            )


def _attributes(expression: Any) -> Iterator[tuple[str, str]]:
    """The variable and name of every attribute that an expression uses."""
    if isinstance(expression, list):
        for item in expression:
            yield from _attributes(item)
    elif isinstance(expression, dict):
        access = expression.get(".")
        if isinstance(access, dict) and "Var" in access.get("left", {}):
            yield access["left"]["Var"], access["attr"]
        for item in expression.values():
            yield from _attributes(item)


def _question(
    tool: str, names: CedarNames, facts: CedarFacts
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The request, and the only entity with attributes."""
    namespace = names.resource.rpartition("::")[0]
    resource = {"type": names.resource, "id": tool}
    request = {
        "principal": _principal(namespace, names, facts.role),
        "action": {"type": _in(namespace, "Action"), "id": names.action},
        "resource": resource,
        "context": {},
    }
    attributes = {name: getattr(facts, name) for name in ATTRIBUTES}
    return request, [{"uid": resource, "attrs": attributes, "parents": []}]


def _principal(namespace: str, names: CedarNames, role: str) -> dict[str, str]:
    if names.principal is None:
        return {"type": _in(namespace, "Agent"), "id": role}
    kind, _, name = names.principal.partition('::"')
    return {"type": kind, "id": name.removesuffix('"')}


def _in(namespace: str, name: str) -> str:
    return f"{namespace}::{name}" if namespace else name

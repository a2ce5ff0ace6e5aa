"""Describes errors in the document: codes, meanings and examples."""

import inspect
from collections import defaultdict
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from api.shape.operation import Operation
from api.shape.schemas import Schema, ref
from orchestrator.ground import errors
from orchestrator.ground.serving.problems import STATUSES, title
from paddock.contract.problem import Problem

MEDIA_TYPE = "application/problem+json"
_REQUEST_ID = "5f0c2b6a9d3e4178"
_INTERNAL = "Something failed inside the control plane; its log has the request id."
# By code: an example's detail and its further members.
_EXAMPLES: dict[str, tuple[str, dict[str, Any]]] = {
    "validation_error": (
        "permission_level must be low|medium|high",
        {"field": "permission_level"},
    ),
    "misdirected_request": (
        "this control plane does not answer for the host rebound.example: its operator can add it "
        "to PADDOCK_ALLOWED_HOSTS",
        {},
    ),
    "unauthorized": ("the key or handle is not known", {}),
    "permission_denied": (
        "command not allowed for permission level low: curl; allowed are, by bare name: cat ls pwd",
        {"rule": "command-allowlist"},
    ),
    "not_found": ("no session sess-4f1c0a9be27d3586", {}),
    "conflict": ("a session with the id build exists", {"field": "id"}),
    "invalid_transition": ("the session is paused: resume it first", {}),
    "busy": (
        "16 commands and terminals run in this session already: wait for one of them to end, or "
        "end one",
        {},
    ),
    "max_refinements_exceeded": (
        "the pack of fix-login was refined 10 times: MaxRefinementsExceeded",
        {},
    ),
    "session_terminated": (
        "the session has ended (completed)",
        {"session_status": "completed", "rationale": "normal"},
    ),
    "budget_exceeded": (
        "Budget exceeded: commands (100/100)",
        {"kind": "commands", "limit": 100, "consumed": 100},
    ),
    "precondition_failed": (
        "is not the version that If-Match or If-None-Match names: notes.txt; read it again",
        {},
    ),
    "range_not_satisfiable": ("the file has 12 bytes", {}),
    "too_large": ("the body is over the limit", {}),
    "rate_limited": (
        "requests_per_second of this key is 50: ask again in 0.02 s",
        {"limit": "requests_per_second", "retry_after": 0.02},
    ),
    "sandbox_unavailable": ("the sandbox agent does not answer", {}),
    "capacity_exhausted": (
        "32 of 32 sandboxes are in use: close one, or raise max_active",
        {"retry_after": 10},
    ),
    "audit_unavailable": ("the audit ledger can't be written: the disk is full", {}),
    "engine_unavailable": ("the container engine does not answer", {}),
    "cluster_unavailable": (
        "the cluster's database does not answer: what runs goes on; try again",
        {"retry_after": 2},
    ),
    "sign_in_unavailable": (
        "sign-in by corp does not work now, because it does not answer: try again in a minute",
        {"retry_after": 30},
    ),
    "node_unavailable": (
        "the node node-1, where this is, does not answer: try again; what runs there may go on",
        {"node": "node-1", "retry_after": 2},
    ),
    "internal_error": (
        "something failed inside the control plane; its log has the request id",
        {},
    ),
}


def problem_examples() -> dict[str, Schema]:
    """An example document for each code, as components."""
    examples = {}
    for code, (detail, members) in _EXAMPLES.items():
        status = STATUSES[code]
        examples[code] = {
            "summary": _meanings()[code],
            "value": {
                "type": "about:blank",
                "title": title(status),
                "status": status.value,
                "code": code,
                "detail": detail,
                "request_id": _REQUEST_ID,
                **members,
            },
        }
    return examples


def problem_responses(codes: Iterable[str]) -> dict[str, str]:
    """The names of the responses for these codes, by status."""
    by_status: dict[HTTPStatus, list[str]] = defaultdict(list)
    for code in sorted(codes):
        by_status[STATUSES[code]].append(code)
    return {str(status.value): "-".join(names) for status, names in by_status.items()}


def component_responses(operations: Iterable[Operation]) -> dict[str, Schema]:
    """All error responses of the operations: one for each set of codes with the same status."""
    names = {
        name for operation in operations for name in problem_responses(operation.codes).values()
    }
    return {name: _response(name.split("-")) for name in sorted(names)}


def _response(codes: list[str]) -> Schema:
    headers = ["X-Request-Id"]
    if "unauthorized" in codes:
        headers.append("WWW-Authenticate")
    if any("retry_after" in _EXAMPLES[code][1] for code in codes):
        headers.append("Retry-After")
    meanings = _meanings()
    return {
        "description": "\n".join(f"* `{code}`: {meanings[code]}" for code in codes),
        "headers": {name: {"$ref": f"#/components/headers/{name}"} for name in headers},
        "content": {
            MEDIA_TYPE: {
                "schema": ref(Problem),
                "examples": {code: {"$ref": f"#/components/examples/{code}"} for code in codes},
            }
        },
    }


def _meanings() -> dict[str, str]:
    """The meaning of each code, from the error class's docstring."""
    meanings = {}
    for _, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, errors.PaddockError):
            meanings[kind.code] = " ".join((inspect.getdoc(kind) or "").split())
    meanings["internal_error"] = _INTERNAL
    return meanings

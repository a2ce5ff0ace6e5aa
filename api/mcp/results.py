"""Results of tools: what the model reads, and the same as an object."""

import json
from dataclasses import dataclass
from typing import Any

from paddock.contract.approvals import Approval
from paddock.contract.base import Model
from paddock.contract.problem import Problem
from paddock.contract.remedies import REMEDIES

# Characters of one stream of a command, or of a file: more does not help a model.
MOST_TEXT = 64 * 1024
# How long a call waits for a person. Clients commonly give up a call after a minute; the same call
# again continues to wait.
APPROVAL_SECONDS = 50.0


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool returns: `text` for the model, `members` for programs."""

    text: str
    members: dict[str, Any] | None = None
    failed: bool = False

    @property
    def raw(self) -> dict[str, Any]:
        """The members of the protocol's `CallToolResult`."""
        result: dict[str, Any] = {
            "content": [{"type": "text", "text": self.text}],
            "isError": self.failed,
        }
        if self.members is not None:
            result["structuredContent"] = self.members
        return result


def of_model(model: Model) -> ToolResult:
    """An answer of the API, as it is."""
    text = model.encode().decode()
    return ToolResult(text, json.loads(text))


class RefusedError(Exception):
    """A tool was refused or has failed; the problem document says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def refused(problem: Problem) -> ToolResult:
    """A refusal or a failure, with the rule and what to do instead."""
    remedy = problem.remedy or REMEDIES.get(problem.rule or "")
    lines = [f"{problem.code}: {problem.detail}"]
    if problem.rule is not None:
        lines.append(f"rule: {problem.rule}")
    if remedy is not None:
        lines.append(f"remedy: {remedy}")
    members = problem.raw | ({} if remedy is None else {"remedy": remedy})
    return ToolResult("\n".join(lines), members, failed=True)


def waits_for(approval: Approval) -> str:
    """What a call waits for, as the client is told."""
    return f"waits for a person's approval {approval.id} of {approval.tool}: {approval.command}"


class HeadAndTail:
    """The first and the last characters of a text that arrives in pieces."""

    def __init__(self, most: int = MOST_TEXT) -> None:
        self._half = most // 2
        self._head = ""
        self._tail = ""
        self._cut = 0

    def add(self, text: str) -> None:
        """Adds a piece."""
        room = self._half - len(self._head)
        self._head += text[:room]
        self._tail += text[room:] if room > 0 else text
        if len(self._tail) > 2 * self._half:
            self._shorten()

    def skip(self, count: int) -> None:
        """Notes bytes that are missing between two pieces."""
        self._cut += count

    @property
    def is_cut(self) -> bool:
        """Whether something is missing."""
        return self._cut > 0 or len(self._tail) > self._half

    @property
    def text(self) -> str:
        """The text, with a line in its middle where something is missing."""
        self._shorten()
        if not self._cut:
            return self._head + self._tail
        return f"{self._head}\n[{self._cut} characters were cut here]\n{self._tail}"

    def _shorten(self) -> None:
        if (over := len(self._tail) - self._half) > 0:
            self._cut += over
            self._tail = self._tail[over:]

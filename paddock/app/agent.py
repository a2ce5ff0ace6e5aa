"""Agents of children."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from paddock.app.runner import Model
from paddock.app.tools import AppTool


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """Who works in a child. What is None is the parent's.

    Attributes:
        tools: typed functions, or `AppTool`s, besides those of the sandbox.
        level: the permission level of the child's sandbox, never above the parent's.
    """

    system: str | None = None
    model: Model | None = None
    tools: Sequence[AppTool | Callable[..., Any]] | None = None
    level: str | None = None

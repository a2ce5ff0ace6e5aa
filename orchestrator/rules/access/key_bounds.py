"""Bounds of one API key's sessions: level, image, tools and time-outs. Pure functions."""

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.ground.errors import PermissionDeniedError
from orchestrator.rules.policy.levels import DEFAULT_LEVEL, Level

# The rules that refuse requests; `listed_images` has the one about images.
MAX_LEVEL, TOOLS = "key-max-level", "key-tools"


@dataclass(frozen=True, slots=True)
class KeyBounds:
    """Bounds of a key's sessions; None means that only the operator's other settings apply.

    The time-outs are in seconds.
    """

    max_level: str | None = None
    images: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    max_idle_timeout: int | None = None
    max_wall_timeout: int | None = None

    def check_level(self, level: Level, levels: Mapping[str, Level]) -> None:
        """Raises PermissionDeniedError if the level is too high, or if that can't be decided."""
        refused = self.refuses_level(level, levels)
        if refused is not None:
            raise PermissionDeniedError(refused[1], rule=refused[0])

    def refuses_level(self, level: Level, levels: Mapping[str, Level]) -> tuple[str, str] | None:
        """The rule and a message if no session may have the level."""
        if self.max_level is None:
            return None
        highest = levels.get(self.max_level)
        if highest is None:
            return MAX_LEVEL, (
                f"the max_level of this key, {self.max_level}, no longer exists: the operator "
                "must fix the keys file"
            )
        if level.rank > highest.rank:
            message = f"the max_level of this key is {self.max_level}: {level.name} is higher"
            return MAX_LEVEL, message
        return None

    def default_level(self, levels: Mapping[str, Level]) -> str:
        """The level of a session that names none: the usual one, or the highest one below it."""
        highest = None if self.max_level is None else levels.get(self.max_level)
        usual = levels[DEFAULT_LEVEL]
        return usual.name if highest is None or highest.rank >= usual.rank else highest.name

    def tools_of_session(self, asked: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """The tools of a session that requests `asked` (None for all tools).

        Raises: PermissionDeniedError.
        """
        if self.tools is None:
            return asked
        if asked is None:
            return self.tools
        for tool in asked:
            refused = self.refuses_tool(tool)
            if refused is not None:
                raise PermissionDeniedError(refused[1], rule=refused[0])
        return asked

    def refuses_tool(self, tool: str) -> tuple[str, str] | None:
        """The rule and a message if the tool may not be opened."""
        if self.tools is None or tool in self.tools:
            return None
        return TOOLS, f"this key may not open the tool {tool}"

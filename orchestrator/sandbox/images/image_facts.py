"""What is on record of an image that is not ours, and which levels it can have. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.rules.policy.levels import Level
from sandbox_agent.decide.command_words import BUILTINS
from sandbox_agent.decide.variables import allowed_variable

# The format of a record; a control plane that expects another one checks the image again.
VERSION = 1
# Programs that execute others, or a user's own scripts, whatever name they are called by.
_SHELLS = ("sh", "ash", "bash", "dash", "hush", "ksh", "mksh", "zsh", "busybox", "toybox")
# Variables that a session's own settings decide.
_OWN = {"HOME", "USER", "LOGNAME", "PWD", "OLDPWD", "SHLVL"}
_PROXIES = {"http_proxy", "https_proxy", "all_proxy", "ftp_proxy", "no_proxy"}

_Path = Annotated[str, Field(max_length=4096)]


class ImageFacts(BaseModel):
    """An image by its id, and what was found in it.

    `names` are those under which it was added. `programs` has the real path of each program by its
    name, `broken` why a program can't start. `environment` is the image's own, and `volumes` are
    the directories that it declares as volumes. `whole`: every file was looked at.
    """

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    version: int
    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9:._-]{1,128}$")]
    names: list[str]
    architecture: str
    size: int
    environment: dict[str, str]
    volumes: list[_Path]
    programs: dict[str, _Path]
    broken: dict[str, str]
    setuid: list[str]
    setuid_count: int
    entries: int
    whole: bool

    def missing(self, level: Level) -> list[str]:
        """The level's commands that the image has not, or that can't start."""
        return [
            name
            for name in sorted(level.commands or ())
            if name not in BUILTINS and (name not in self.programs or name in self.broken)
        ]

    def explained(self, name: str) -> str:
        """A missing program's name, with the reason if it is there and can't start."""
        return f"{name} ({self.broken[name]})" if name in self.broken else name

    def problem(self, level: Level) -> str | None:
        """Why no session of that level can have the image, and what to do; None if it can."""
        if level.commands is None:
            return None
        wanted = {name for name in level.commands if name not in BUILTINS}
        missing = self.missing(level)
        if len(missing) == len(wanted):
            return (
                f"it has none of the programs of level {level.name}: install coreutils, findutils "
                "and grep in it, or use a level that permits any command"
            )
        shells = {self.programs[name] for name in _SHELLS if name in self.programs}
        shared = sorted(
            name for name in wanted.difference(_SHELLS) if self.programs.get(name) in shells
        )
        if shared and level.confinement.paths:
            return (
                f"its {', '.join(shared[:3])}{', …' if len(shared) > 3 else ''} and its shell are "
                f"one program, so level {level.name} can't keep commands to its list: install "
                "coreutils, findutils and grep in it, or use a level that permits any command"
            )
        return None

    def variables(self, patterns: Collection[str] | None) -> dict[str, str]:
        """The image's variables that commands get by default.

        `patterns` are the names that the level permits. PATH is the image's where any name is
        permitted; the programs of other levels are found on a fixed one.
        """
        return {
            name: value
            for name, value in self.environment.items()
            if name not in _OWN
            and name.lower() not in _PROXIES
            and allowed_variable(name, patterns)
            and (name != "PATH" or patterns is None)
        }


def parse_environment(items: Iterable[str]) -> dict[str, str]:
    """The variables of an image's configuration. Raises: ValueError if they take too much room."""
    found = {name: value for name, _, value in (item.partition("=") for item in items) if name}
    if len(found) > 500 or sum(len(name) + len(value) for name, value in found.items()) > 65_536:
        raise ValueError("its environment takes more than 64 KiB")
    return found


def facts_of(image: Mapping[str, Any], found: Mapping[str, Any]) -> ImageFacts:
    """The record of an image: `image` is what the engine says, and `found` what was found inside.

    Raises: ValueError if that is not in the form of a record.
    """
    return ImageFacts.model_validate({**found, **image, "version": VERSION})

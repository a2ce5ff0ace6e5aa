"""The engine's runtimes: which it has, and what sandboxes under each of them found inside."""

from collections.abc import Collection, Mapping
from contextlib import suppress

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine.base import Engine, EngineInfo
from sandbox_agent.decide.facilities import Kernel

# The engine's name of the runtime that is known to keep the flags of what it mounts.
KEEPS_FLAGS = "runc"


def unknown_runtime(runtime: str | None, known: Collection[str] | None) -> str | None:
    """Why the engine can't have that runtime; None if it may have it.

    `known` are its runtimes; None: it did not answer. Runtimes with the full name of a containerd
    shim need no configuration and are not listed.
    """
    if runtime is None or known is None or "." in runtime or runtime in known:
        return None
    return f"the engine has no runtime {runtime}, only {', '.join(sorted(known))}"


class Runtimes:
    """What is known of them now."""

    def __init__(self, configured: str | None, engine: Engine | None = None) -> None:
        """`configured` is the runtime of levels that name none; None: the engine's default.

        `engine` None: nobody is there to ask.
        """
        self.configured = configured
        self._engine = engine
        # None: the engine has not answered yet.
        self.known: frozenset[str] | None = None
        self._default: str | None = None
        self._found: dict[str, Kernel] = {}
        self._without_root: dict[str, str | None] = {}

    async def ask(self) -> None:
        """Asks the engine; one that does not answer still has those that it had."""
        if self._engine is not None:
            with suppress(EngineUnavailableError):
                self.take(await self._engine.info())

    def take(self, info: EngineInfo) -> None:
        """Takes the engine's description of itself."""
        self.known = frozenset(info.runtimes)
        self._default = info.default_runtime

    @property
    def usual(self) -> str | None:
        """The name of the runtime of levels that name none; None: not known yet."""
        return self.configured or self._default

    def of(self, runtime: str | None) -> str | None:
        """The name of the runtime under which a level with that `runtime` is; None: unknown."""
        return runtime or self.usual

    def refused(self, runtime: str | None) -> str | None:
        """Why the engine can't have that runtime; None if it may have it."""
        return unknown_runtime(runtime, self.known)

    def note(self, runtime: str, kernel: Kernel) -> None:
        """Takes what an agent under that runtime found."""
        self._found[runtime] = kernel

    @property
    def found(self) -> Mapping[str, Kernel]:
        """What the latest sandbox under each runtime found, by the runtime's name."""
        return self._found

    def note_root(self, level: str, refused: str | None) -> None:
        """Takes how the start of that level's latest sandbox ended, whose commands are root inside.

        `refused` is why it could not be had; None: it has root inside.
        """
        self._without_root[level] = refused

    @property
    def without_root(self) -> Mapping[str, str | None]:
        """What `note_root` took, by the level's name; a level without a sandbox is absent."""
        return self._without_root

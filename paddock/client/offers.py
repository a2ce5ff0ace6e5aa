"""What a control plane offers to sessions: levels, policies, images, models and tools."""

from paddock.client.answers import read_items
from paddock.client.faces import F, Face, method
from paddock.client.requests import given
from paddock.contract.images import Image
from paddock.contract.models import LanguageModel
from paddock.contract.policies import ListedPolicy
from paddock.contract.system import Level
from paddock.contract.tools import Tool


class Policies(Face[F]):
    """The permission levels, and the policies of sessions' turns."""

    @method
    async def list(self) -> tuple[Level, ...]:
        """The levels, lowest first."""
        return read_items(Level, await self._api.json("GET", "/api/policies"))

    @method
    async def sessions(self) -> tuple[ListedPolicy, ...]:
        """The policies that sessions may have, the built-in ones first."""
        listed = await self._api.json("GET", "/api/policies")
        return read_items(ListedPolicy, {"items": listed.get("session_policies", [])})


class Images(Face[F]):
    """The images that sessions may request."""

    @method
    async def list(self) -> tuple[Image, ...]:
        """The operator's images, the default one first, and whether each is usable."""
        return read_items(Image, await self._api.json("GET", "/api/images"))


class Models(Face[F]):
    """The language models that turns may call."""

    @method
    async def list(self) -> tuple[LanguageModel, ...]:
        """The operator's models with their prices, the default one first."""
        return read_items(LanguageModel, await self._api.json("GET", "/api/models"))


class Tools(Face[F]):
    """The operator's tools. `Session.tools` has what one session may use."""

    @method
    async def list(self, *, level: str | None = None) -> tuple[Tool, ...]:
        """All commands of all tools, and whether a session at the level could use each.

        None: the level that sessions usually have.
        """
        params = given(level=level)
        return read_items(Tool, await self._api.json("GET", "/api/tools", params=params))

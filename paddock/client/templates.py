"""Templates: prepared workspaces, from which sessions are created."""

from paddock.client.answers import read, read_items
from paddock.client.faces import F, Face, method
from paddock.client.requests import TEMPLATE_SECONDS, segment
from paddock.contract.templates import Template

_TEMPLATES = "/api/templates"


class Templates(Face[F]):
    """The operator's templates. All methods raise `PaddockAPIError`.

    A session is created from one by `sessions.create(template="…")`.
    """

    @method
    async def list(self) -> tuple[Template, ...]:
        """The templates by name, and which are built."""
        return read_items(Template, await self._api.json("GET", _TEMPLATES))

    @method
    async def get(self, name: str) -> Template:
        """One template; `failure` has the output of a failing command. Raises: NotFoundError."""
        return read(Template, await self._api.json("GET", _at(name)))

    @method
    async def build(self, name: str) -> Template:
        """Builds the template unless it is built, also after a failure, and waits for that.

        Raises: NotFoundError; ConflictError with the output of the command that failed.
        """
        url = f"{_at(name)}/build"
        return read(Template, await self._api.json("POST", url, body={}, timeout=TEMPLATE_SECONDS))


def _at(name: str) -> str:
    return f"{_TEMPLATES}/{segment(name)}"

"""Governed sandboxes for AI agents: the client, `Paddock` for asyncio and `PaddockSync` without.

```python
from paddock import Paddock

async with Paddock() as p:
    async with await p.sessions.create(permission_level="low") as s:
        result = await s.exec("ls -la")
        async for event in s.exec_stream(argv=["grep", "-r", "TODO", "."]):
            ...
```

In one line, without an event loop: `with paddock.session() as s: s.exec("ls -la")`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddock.client import *  # noqa: F403
    from paddock.client.one_session import session as session


def __getattr__(name: str) -> Any:
    """Loads the client's names on first use: the command line starts without them."""
    if name == "session":  # in `paddock.client`, this is the module of the class
        return import_module("paddock.client.one_session").session
    client = import_module("paddock.client")
    if name == "__all__":
        return [*client.__all__, "session"]
    if name in client.__all__:
        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *import_module("paddock.client").__all__, "session"]

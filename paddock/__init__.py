"""Governed sandboxes for AI agents: the client, `Paddock` for asyncio and `PaddockSync` without.

```python
from paddock import Paddock

async with Paddock(url, key) as p:
    async with await p.sessions.create(permission_level="low") as s:
        result = await s.exec("ls -la")
        async for event in s.exec_stream(argv=["grep", "-r", "TODO", "."]):
            ...
```
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paddock.client import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """Loads the client's names on first use: the command line starts without them."""
    client = import_module("paddock.client")
    if name == "__all__" or name in client.__all__:
        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *import_module("paddock.client").__all__]

"""The JavaScript client has every method of the Python client, or a reason why it has none."""

import importlib
import pkgutil
import re

from paddock import client
from paddock.client.faces import Face
from scripts.npm_package import SOURCE

_CLASS = re.compile(
    r"^export (?:abstract )?class (?P<name>\w+)(?: extends (?P<base>\w+))?.*?^}", re.M | re.S
)
_METHOD = re.compile(r"^  (?:async )?\*?([a-z]\w*)(?:<.*>)?\(", re.M)
# Parts of another class, which has their methods.
PARTS = {"SessionCommands", "SessionCode", "SessionRuns", "SessionSpawning", "FileTrees", "_Client"}
CLASSES = {"PaddockSync": "Paddock", "SessionProposals": "Proposals", "SessionTurns": "Turns"}
# Methods that are elsewhere, as one of another name.
ELSEWHERE = {
    "Paddock.request": "Paddock.call",
    "Policies.list": "Paddock.levels",
    "Policies.sessions": "Paddock.sessionPolicies",
    "Images.list": "Paddock.images",
    "Models.list": "Paddock.models",
    "Tools.list": "Paddock.tools",
    "SessionSnapshots.create": "NamedSnapshots.create",
    "Settings.get": "Session.settings",
    "Settings.set": "Session.setSettings",
}
_LOCAL = "files of the local machine are the runtime's matter: pass a stream"
_MCP = "ready-made clients of the protocol take the session's address and its handle"
_GIT = "it is made of commands: `session.exec` runs git"
MISSING = {
    "Files.download": _LOCAL,
    "Files.upload_dir": _LOCAL,
    "Files.download_dir": _LOCAL,
    "Mcp.initialize": _MCP,
    "Mcp.request": _MCP,
    "Mcp.notify": _MCP,
    "Mcp.listen": _MCP,
    "Git.clone": _GIT,
    "Git.status": _GIT,
    "Git.diff": _GIT,
    "Git.commit": _GIT,
    "Git.push": _GIT,
    "Paddock.close": "nothing needs to be closed",
}


def in_python() -> set[str]:
    """`Class.method` of each public method of the Python client."""
    found = set()
    for module in pkgutil.iter_modules(client.__path__):
        for kind in vars(importlib.import_module(f"{client.__name__}.{module.name}")).values():
            if isinstance(kind, type) and issubclass(kind, Face) and kind.__name__ not in PARTS:
                name = CLASSES.get(kind.__name__, kind.__name__)
                members = {each for base in kind.__mro__ for each in vars(base)}
                found |= {f"{name}.{each}" for each in members if not each.startswith("_")}
    return found


def in_javascript() -> set[str]:
    """The same of the JavaScript client."""
    texts = [path.read_text(encoding="utf-8") for path in SOURCE.glob("src/*.ts")]
    classes = {each["name"]: each for text in texts for each in _CLASS.finditer(text)}
    found = set()
    for name in classes:
        kind: re.Match[str] | None = classes[name]
        while kind is not None:
            found |= {f"{name}.{method}" for method in _METHOD.findall(kind[0])}
            kind = classes.get(kind["base"])
    return found


def camel(name: str) -> str:
    kind, _, method = name.partition(".")
    first, *others = method.split("_")
    return f"{kind}.{first}{''.join(each.title() for each in others)}"


def test_every_method_of_the_python_client_is_there() -> None:
    python, javascript = in_python(), in_javascript()
    wanted = {name: ELSEWHERE.get(name, camel(name)) for name in python - MISSING.keys()}
    lacking = {name for name, other in wanted.items() if other not in javascript}
    assert lacking == set(), "add them to sdk/js/src, or a reason to MISSING"


def test_no_exception_is_needless() -> None:
    python, javascript = in_python(), in_javascript()
    assert MISSING.keys() | ELSEWHERE.keys() <= python
    assert not {name for name in MISSING if camel(name) in javascript}

"""Contexts: control planes by name, each with its key, in one file that only its user may read."""

import json
import os
import re
import stat
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from paddock.connect.errors import NoAddressError

CONTEXT_VARIABLE = "PADDOCK_CONTEXT"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Renewal:
    """How the token of a context is renewed at its issuer. `until`: seconds since 1970."""

    token_endpoint: str
    client_id: str
    refresh_token: str = field(repr=False)
    resource: str | None
    # Whether the ID token is the credential, and not the access token.
    uses_id_token: bool
    until: float


@dataclass(frozen=True, slots=True)
class Context:
    """A control plane's URL, and the key or token for it; `renewal` for a token that has one."""

    url: str
    key: str = field(repr=False)
    renewal: Renewal | None = None


@dataclass(frozen=True, slots=True)
class Contexts:
    """What the file has; `current` is the name of the context that is used by default."""

    by_name: Mapping[str, Context] = field(default_factory=dict)
    current: str | None = None

    def named(self, name: str) -> Context:
        """The context of that name. Raises: NoAddressError."""
        if name not in self.by_name:
            raise NoAddressError(
                f"there is no context {name!r}",
                "`paddock context list` shows what there is, `paddock login URL` adds one",
            )
        return self.by_name[name]

    def name_of_url(self, url: str) -> str | None:
        """The current context if it has that URL, else the first one that has."""
        url = url.rstrip("/")
        ordered = sorted(self.by_name, key=lambda name: name != self.current)
        return next((n for n in ordered if self.by_name[n].url.rstrip("/") == url), None)

    def with_one(self, name: str, context: Context) -> "Contexts":
        """With that context, which is the current one then. Raises: NoAddressError for the name."""
        if _NAME.fullmatch(name) is None:
            raise NoAddressError(
                f"{name!r} can't name a context", "use letters, digits, `.`, `_` and `-`"
            )
        return Contexts({**self.by_name, name: context}, name)

    def using(self, name: str) -> "Contexts":
        """With that one as the current one. Raises: NoAddressError."""
        self.named(name)
        return replace(self, current=name)

    def without(self, name: str) -> "Contexts":
        """Without that one. Raises: NoAddressError."""
        self.named(name)
        left = {each: self.by_name[each] for each in self.by_name if each != name}
        return Contexts(left, None if self.current == name else self.current)


def contexts_path() -> Path:
    """The file: `paddock/contexts.json` in the user's directory of configuration."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    # A relative one is to be ignored.
    root = Path(base) if base.startswith("/") else Path("~/.config").expanduser()
    return root / "paddock" / "contexts.json"


def load_contexts() -> Contexts:
    """What the file has; nothing if there is none.

    Raises: NoAddressError if others may read the file, or it has another form.
    """
    path = contexts_path()
    try:
        with path.open("rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise NoAddressError(f"others can read {path}, which has keys", f"chmod 600 {path}")
            text = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise NoAddressError(f"{path}: {error.strerror}") from None
    try:
        if len(text) > _MOST_BYTES:
            raise ValueError("it is too long")
        return _read(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise NoAddressError(
            f"{path} has no contexts", "remove it, and `paddock login URL` again"
        ) from None


def save_contexts(contexts: Contexts) -> None:
    """Replaces the file, in one step. Raises: OSError."""
    path = contexts_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    document = {
        "current": contexts.current,
        "contexts": {
            name: {
                "url": each.url,
                "key": each.key,
                **({} if each.renewal is None else {"renewal": asdict(each.renewal)}),
            }
            for name, each in contexts.by_name.items()
        },
    }
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".contexts-")  # with mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _read(document: Any) -> Contexts:
    found = {}
    for name, each in document["contexts"].items():
        url, key = each["url"], each["key"]
        if not isinstance(url, str) or not isinstance(key, str):
            raise TypeError(name)
        renewal = each.get("renewal")
        found[name] = Context(url, key, None if renewal is None else Renewal(**renewal))
    current = document["current"]
    return Contexts(found, current if current in found else None)

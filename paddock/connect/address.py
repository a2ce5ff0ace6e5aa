"""Finds a control plane's address and the key for it."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from paddock.connect.contexts import CONTEXT_VARIABLE, load_contexts
from paddock.connect.errors import NoAddressError
from paddock.connect.renewal import ContextToken

URL_VARIABLE = "PADDOCK_URL"
KEY_VARIABLE = "PADDOCK_KEY"
# The entry point group that names an installed server.
GROUP = "paddock.server"
_MAX_KEY_BYTES = 4096


class Local(Protocol):
    """The control plane of this machine's state directory, as the installed server knows it."""

    @property
    def find_url(self) -> Callable[[], str]:
        """Where it listens. Raises: NoAddressError."""

    @property
    def find_key(self) -> Callable[[], str | Path]:
        """Its administrator's key, or the file of it. Raises: NoAddressError."""

    @property
    def check_announced(self) -> Callable[[], None]:
        """Raises: NoAddressError if it has not told where it listens."""


@dataclass(frozen=True, slots=True)
class Address:
    """A control plane's URL, and the key for it. `token`: the key, if it is renewed."""

    url: str
    key: str = field(repr=False)
    token: ContextToken | None = None


def find_address(
    url: str | None = None,
    key: str | None = None,
    *,
    key_file: Path | None = None,
    context: str | None = None,
    local: Callable[[], Local] | None = None,
) -> Address:
    """The address and the key that the arguments, the variables, a context or this machine name.

    In this order: the arguments; `PADDOCK_URL` and `PADDOCK_KEY`; the context in `PADDOCK_CONTEXT`
    or the current one; the state directory of this machine. A context's key is sent only to its own
    URL. The state directory's key is sent to a URL that the user has named, and otherwise only to
    the control plane that has recorded there where it listens: any program may listen at the
    default address. `local` finds this machine's server when it is needed; None: the installed one.

    Raises: NoAddressError.
    """
    asked = key if key is not None else None if key_file is None else key_in(key_file)
    if context is not None and url is None:
        chosen = load_contexts().named(context)
        return _of_context(context, chosen.url) if asked is None else Address(chosen.url, asked)
    if asked is None:
        asked = os.environ.get(KEY_VARIABLE) or None
    named = url if url is not None else os.environ.get(URL_VARIABLE) or None
    if named is None:
        contexts = load_contexts()
        name = os.environ.get(CONTEXT_VARIABLE) or contexts.current
        if name is not None:
            chosen = contexts.named(name)
            return _of_context(name, chosen.url) if asked is None else Address(chosen.url, asked)
    if named is not None and asked is not None:
        return Address(named, asked)
    if named is not None and (known := load_contexts().name_of_url(named)) is not None:
        return _of_context(known, named)
    here = _Installed() if local is None else local()
    place = here.find_url() if named is None else named
    if asked is not None:
        return Address(place, asked)
    found = here.find_key()
    if named is None:
        here.check_announced()
    return Address(place, found if isinstance(found, str) else key_in(found))


def _of_context(name: str, url: str) -> Address:
    token = ContextToken(name)
    return Address(url, token.key, None if token.due == float("inf") else token)


def key_in(file: Path) -> str:
    """The key in a file. Raises: NoAddressError."""
    try:
        with file.open("rb") as opened:
            text = opened.read(_MAX_KEY_BYTES).decode("ascii", "replace").strip()
    except OSError as error:
        raise NoAddressError(
            f"no key: {file}: {error.strerror}", f"set {KEY_VARIABLE}, or give --key-file FILE"
        ) from None
    if not text:
        raise NoAddressError(f"no key: {file} is empty")
    return text


class _Installed:
    """The installed server, loaded on first use; without one, nothing is found."""

    def find_url(self) -> str:
        found: str = self._server("no control plane is named", "URL").find_url()
        return found

    def find_key(self) -> str | Path:
        found: str | Path = self._server("no key", "KEY").find_key()
        return found

    def check_announced(self) -> None:
        self._server("no control plane is named", "URL").check_announced()

    def _server(self, missing: str, variable: str) -> Local:
        for point in entry_points(group=GROUP):
            try:
                found: Local = point.load()
            except ImportError as error:
                raise NoAddressError(f"the installed server can't be loaded: {error}") from None
            return found
        raise NoAddressError(missing, f"set PADDOCK_{variable}, or `paddock login URL`")

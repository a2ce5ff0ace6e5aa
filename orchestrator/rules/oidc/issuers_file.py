"""Reads the operator's file of issuers, and names the line of a mistake."""

import re
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from orchestrator.ground.config_error import ConfigError
from orchestrator.rules.oidc.issuer_terms import IssuerTerms
from orchestrator.settings.operator_files import read_regular, read_toml
from orchestrator.settings.schema_errors import reason
from orchestrator.settings.watched_files import fingerprints

_MOST_ISSUERS = 16
_TABLE = re.compile(r"\s*\[\[?\s*([A-Za-z_.]+)\s*\]\]?")
_REMEDY = "docs/sign-in.md describes the members"


class IssuersFile:
    """The issuers in force. `all` changes as a whole when the file is read again."""

    def __init__(self, path: Path | None) -> None:
        """Reads the file; None: nobody can sign in. Raises: ConfigError."""
        self.path = path
        # Taken before the file is read, so that an edit during the read is noticed.
        self.seen = fingerprints([] if path is None else [path])
        self.all: tuple[IssuerTerms, ...] = () if path is None else load_issuers(path)
        self._listeners: list[Callable[[], None]] = []

    def reading(self) -> Callable[[], None]:
        """Reads the file, and returns what puts it in force. Raises: ConfigError."""
        issuers = () if self.path is None else load_issuers(self.path)
        return lambda: self._replace(issuers)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` when the issuers have changed."""
        self._listeners.append(listener)

    def _replace(self, issuers: tuple[IssuerTerms, ...]) -> None:
        self.all = issuers
        for listener in self._listeners:
            listener()


def load_issuers(path: Path) -> tuple[IssuerTerms, ...]:
    """The issuers of the file. Raises: ConfigError that names the file, the line and the remedy."""
    table = read_toml(path)
    for name in table.keys() - {"oidc"}:
        raise ConfigError(f"{path}: {name}: no such field: {_REMEDY}")
    entries = table.get("oidc", [])
    if not isinstance(entries, list) or len(entries) > _MOST_ISSUERS:
        raise ConfigError(f"{path}: oidc must be at most {_MOST_ISSUERS} tables, [[oidc]]")
    found: list[IssuerTerms] = []
    for number, entry in enumerate(entries):
        try:
            terms = IssuerTerms.model_validate(entry)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            where = ".".join(map(str, first["loc"]))
            line = _line(path, number, first["loc"])
            why = reason(first["type"], first["msg"])
            raise ConfigError(
                f"{path}:{line}: {where} {why}: {_REMEDY}".replace("  ", " ")
            ) from None
        if any(terms.name == each.name or terms.issuer == each.issuer for each in found):
            line = _line(path, number, ())
            raise ConfigError(f"{path}:{line}: the name or issuer is taken: choose another")
        found.append(terms)
    return tuple(found)


def _line(path: Path, number: int, place: tuple[int | str, ...]) -> int:
    """The line of a member, or of the table that lacks it; the first is 1."""
    wanted = ["oidc"] * (number + 1)
    key = str(place[0]) if place else ""
    if place[:1] == ("rules",) and len(place) > 1:
        wanted += ["oidc.rules"] * (int(place[1]) + 1)
        key = str(place[2]) if len(place) > 2 else ""
    at = 0
    for line, text in enumerate(read_regular(path).decode(errors="replace").splitlines(), 1):
        header = _TABLE.match(text)
        if header is not None:
            if not wanted and header[1] in ("oidc", "oidc.rules"):
                break
            if wanted and header[1] == wanted[0]:
                wanted.pop(0)
                at = line
        elif not wanted and key and re.match(rf'\s*"?{re.escape(key)}"?\s*=', text):
            return line
    return at or 1

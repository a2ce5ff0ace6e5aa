"""From where this machine's apt has its packages."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_ONE_LINE = re.compile(r"deb\s+(?:\[[^]]*\]\s+)?(\S+)\s+(\S+)\s")
_USED = re.compile(r"^\s*(deb\s|URIs:)", re.MULTILINE)
_MACHINE = Path("/etc/apt")


def source_files(apt: Path = _MACHINE) -> list[Path]:
    """The files that name mirrors, in both of apt's formats."""
    parts = apt / "sources.list.d"
    candidates = [
        apt / "sources.list",
        *sorted(parts.glob("*.list")),
        *sorted(parts.glob("*.sources")),
    ]
    return [path for path in candidates if path.is_file() and _USED.search(path.read_text())]


def serving(texts: Iterable[str], suite: str) -> list[str]:
    """The mirrors in these files that have a suite, such as `bookworm`, each once.

    Suites with more in their name (`bookworm-updates`) are other ones.
    """
    return list(dict.fromkeys(uri for text in texts for uri in _uris(text, suite)))


def _uris(text: str, suite: str) -> Iterator[str]:
    for line in text.splitlines():
        found = _ONE_LINE.match(line.strip())
        if found and found[2] == suite:
            yield found[1]
    for paragraph in re.split(r"\n\s*\n", text):
        fields = dict(re.findall(r"^(URIs|Suites):\s*(.*)$", paragraph, re.MULTILINE))
        if suite in fields.get("Suites", "").split():
            yield from fields.get("URIs", "").split()

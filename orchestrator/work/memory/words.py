"""The words of an entry and of a search, as SQLite's full-text search finds them. Pure.

A word is letters and digits of any script, in small letters without accents. So the memory of a
cluster, which PostgreSQL searches, finds what one machine's finds.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator

# As in a search of one machine: what its words are, how many count, and characters of each.
WORD = re.compile(r"\w+")
MOST_WORDS = 32
MOST_LETTERS = 64
_PLAIN = re.compile(r"[^\W_]+")
# PostgreSQL keeps so many places, and so many of each word.
_LAST_PLACE = 16_383
_MOST_PLACES = 255
# No phrase reaches from one text into the next.
_GAP = 2


def asked(words: str) -> list[str]:
    """What is searched for: any of these."""
    return [word[:MOST_LETTERS] for word in WORD.findall(words)[:MOST_WORDS]]


def query_of(words: str) -> str | None:
    """The search as PostgreSQL's `tsquery`; None: it has no words, and finds nothing."""
    phrases = (" <-> ".join(f"'{each}'" for each in _plain(word)) for word in asked(words))
    return " | ".join(f"({phrase})" for phrase in phrases if phrase) or None


def vector_of(texts: Iterable[str]) -> str:
    """The texts' words with their places, as PostgreSQL's `tsvector`."""
    places: dict[str, list[str]] = {}
    place = 0
    for text in texts:
        for word in _plain(text):
            place += 1
            found = places.setdefault(word, [])
            if len(word) <= MOST_LETTERS and place <= _LAST_PLACE and len(found) < _MOST_PLACES:
                found.append(str(place))
        place += _GAP
    return " ".join(f"'{word}':{','.join(found)}" for word, found in places.items() if found)


def _plain(text: str) -> Iterator[str]:
    """Each word; letters and digits alone, so that no character of a query's syntax is left."""
    decomposed = unicodedata.normalize("NFKD", text)
    bare = "".join(each for each in decomposed if not unicodedata.combining(each))
    return (found.group() for found in _PLAIN.finditer(bare.lower()))

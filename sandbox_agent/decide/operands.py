"""Checks operands and dates at levels that list their commands.

Other code checks that paths are in the workspace. This code refuses operands wherever they lead.
"""

from collections.abc import Sequence
from itertools import pairwise

from sandbox_agent.decide import curl
from sandbox_agent.decide.options import COPY, DATES, FORMAT, MOVE, NONE, URL, Parsed, Table


def refusal(name: str, table: Table, parsed: Parsed) -> tuple[str, str, str] | None:
    """The rule, the reason and the refused word; None if everything is allowed."""
    date = _zoned_date(parsed.values(*DATES.get(name, ())))
    if date is not None:
        return (
            "option-not-allowed",
            f"{name} takes no time zone in a date, as it names a file",
            date,
        )
    if table.operands == URL:
        return curl.refusal(parsed)
    found: str | None = None
    text = ""
    if table.operands == NONE:
        text = f"{name} takes no operand at this level; run a command by its own name"
        found = next(iter(parsed.operands), None)
    elif table.operands == FORMAT:
        text = f"{name} only shows the time; its operand must begin with +"
        found = next((word for word in parsed.operands if not word.startswith("+")), None)
    elif name == "mkdir":
        text = f"{name} takes no .. after a name"
        found = next((path for path in parsed.operands if _climbs(path)), None)
    elif table.operands in {COPY, MOVE}:
        text = f"an earlier source may get in the way of this one; {name} them one at a time"
        found = _in_the_way(parsed.operands[:-1])
    if found is None:
        return None
    return "operand-not-allowed", text, found


def _zoned_date(dates: Sequence[str]) -> str | None:
    return next((date for date in dates if "TZ=" in date), None)


def _climbs(path: str) -> bool:
    """Whether `..` comes after a name.

    The command itself might create a directory of that name after the check of links.
    """
    return any(part == ".." and before != ".." for before, part in pairwise(_parts(path)))


def _in_the_way(sources: Sequence[str]) -> str | None:
    """The first source whose path contains a name that an earlier source brings along.

    The earlier source may bring a link that did not exist at the check of links.
    """
    brought: set[str] = set()
    for source in sources:
        *way, last = _parts(source) or [""]
        if brought.intersection(way):
            return source
        brought.add(last)
    return None


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]

"""Whether, and when, a call that an endpoint could not serve is made again. Pure."""

import random
from collections.abc import Mapping

# Calls in addition to the first one.
MOST_RETRIES = 2
_TEMPORARY = frozenset({408, 409, 429})
_FIRST_SECONDS = 0.5
_LONGEST_ASKED = 60.0


def is_temporary(status: int) -> bool:
    """Whether the same call may succeed later."""
    return status in _TEMPORARY or status >= 500


def pause(number: int, headers: Mapping[str, str] | None = None) -> float:
    """Seconds before the retry with that number, from 0: as the endpoint asks, or longer each time.

    It varies, so that many callers do not come back at the same moment.
    """
    asked = _asked(headers or {})
    if asked is not None and 0 < asked <= _LONGEST_ASKED:
        return asked
    spread: float = 1 - random.random() / 4  # noqa: S311 - no secret
    return _FIRST_SECONDS * 2.0**number * spread


def _asked(headers: Mapping[str, str]) -> float | None:
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            return float(headers[name]) / unit
        except (KeyError, ValueError):
            continue  # not given, or a date, which nobody sends
    return None

"""When a delivery that failed is tried again. Pure."""

# About three hours in all.
MOST_TRIES = 15
_FIRST_PAUSE = 1.0
LONGEST_PAUSE = 3600.0


def pause(tries: int, chance: float) -> float:
    """Seconds after that many tries, of which at least one was made.

    They double from 1 s to an hour. `chance`, from 0 to 1, takes away up to half, so that
    deliveries that failed together are not all tried again together.
    """
    longest = min(LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(tries - 1, 30))
    return longest * (1 - chance / 2)

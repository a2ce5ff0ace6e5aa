"""How fast a body must arrive. Pure: the time that passes is told."""

from typing import NamedTuple

from orchestrator.ground.errors import ValidationError


class Pace(NamedTuple):
    """At least so many bytes in each window of so many seconds, until the body ends."""

    bytes_per_second: int
    seconds: float

    @property
    def least(self) -> int:
        """Bytes in a window."""
        return round(self.bytes_per_second * self.seconds)


# Bodies are held until they are whole; uploads are passed on as they come, and are perhaps made
# meanwhile.
BODY_PACE = Pace(8 * 1024, 10.0)
UPLOAD_PACE = Pace(1024, 60.0)


class Window:
    """The present window of one body. Time counts only while the server waits for the client."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self.left = pace.seconds
        self._arrived = 0

    def passed(self, seconds: float, arrived: int) -> None:
        """Counts a time of waiting and what came then. Raises: ValidationError if too slow."""
        self.left -= seconds
        self._arrived += arrived
        if self.left > 0:
            return
        if self._arrived < self._pace.least:
            raise ValidationError(
                f"the body arrives too slowly: {self._arrived} bytes in {self._pace.seconds:g} s, "
                f"and at least {self._pace.least} must"
            )
        self.left, self._arrived = self._pace.seconds, 0

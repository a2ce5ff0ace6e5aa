"""What a session has used of its way out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self


@dataclass(slots=True)
class EgressUsage:
    """Requests and bytes since the session began, and connections that are open at present.

    `sent` and `received` are bytes to and from the outside.
    """

    allowed: int = 0
    denied: int = 0
    sent: int = 0
    received: int = 0
    connections: int = 0

    def stored(self) -> dict[str, int]:
        """Its form in JSON, without connections, which do not outlive the process."""
        return {
            "allowed": self.allowed,
            "denied": self.denied,
            "sent": self.sent,
            "received": self.received,
        }

    @classmethod
    def restored(cls, values: Mapping[str, int]) -> Self:
        """What `stored` returned; an empty mapping is no use."""
        return cls(**values)

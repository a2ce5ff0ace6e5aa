"""Why a node can't be reached, and what to do, in the words of the log. No I/O."""

import os
import ssl

from orchestrator.cluster.tls import reason_of

_SEE = "see whether it runs, and the network to it"
# A node that refuses a certificate sends no reason, and neither does one that is killed.
HUNG_UP = (
    "it closed the connection without an answer: it was ended, or refuses this gateway's"
    " certificate; see its log, and `paddock doctor --gateway` here"
)


def no_connection(error: OSError) -> str:
    """Why there is no connection, without what asyncio says around it."""
    if isinstance(error, TimeoutError):
        return f"it does not answer; {_SEE}"
    if isinstance(error, ssl.SSLCertVerificationError):
        why = reason_of(error).rstrip(".")
        return f"{why}; make its certificate anew, by an authority in PADDOCK_GATEWAY_CA"
    if isinstance(error, ssl.SSLError):
        return f"{reason_of(error)}; {_SEE}"
    number = error.errno
    if number is None or number < 0:  # no name, or several addresses
        return f"{error.strerror or error}; {_SEE}"
    return f"{os.strerror(number)}; {_SEE}"

"""Why a node can't be reached, and what to do, in the words of the log. No I/O."""

from aiohttp import ClientError, ConnectionTimeoutError

_SEE = "see whether it runs, and the network to it"
# A node that refuses a certificate sends no reason, and neither does one that is killed.
HUNG_UP = (
    "it closed the connection without an answer: it was ended, or refuses this gateway's"
    " certificate; see its log, and `paddock doctor --gateway` here"
)


def no_connection(error: ClientError) -> str:
    """Why there is no connection, without what aiohttp says around it."""
    if isinstance(error, ConnectionTimeoutError):
        return f"it does not answer; {_SEE}"
    cause = getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error
    refused = getattr(cause, "verify_message", None)
    if refused:
        why = str(refused).rstrip(".")
        return f"{why}; make its certificate anew, by an authority in PADDOCK_GATEWAY_CA"
    return f"{getattr(cause, 'strerror', None) or cause}; {_SEE}"

"""What a sandbox may reach: E2B's lists as rules that narrow a session's way out."""

import ipaddress
from typing import Any

from api.compat.call import Call
from api.compat.e2b.bodies import NetworkBody
from api.compat.e2b.views import nothing
from api.operations.egress import change_egress, show_egress
from api.shape.objects import validated
from orchestrator.ground.errors import ValidationError
from paddock.contract.egress import EgressBody

_ALL = frozenset({"0.0.0.0/0", "::/0"})
_NOTHING: dict[str, Any] = {"allow": []}


def narrowing(
    network: NetworkBody | None, allow_internet: bool | None = None
) -> dict[str, Any] | None:
    """The rules; None: it reaches what its level permits.

    A denial of everything leaves what is allowed; else allowed destinations change nothing, because
    only the level and an admin allow anything. Raises: ValidationError.
    """
    network = network or NetworkBody()
    if allow_internet is False or network.allow_internet_access is False:
        return _NOTHING
    denied = network.deny_out or []
    if not denied:
        return None
    if _ALL & {*denied}:
        return {"allow": [_rule(each, "allowOut") for each in network.allow_out or []]}
    return {"deny": [_rule(each, "denyOut") for each in denied]}


async def change_network(call: Call) -> Any:
    """Replaces what a sandbox may reach."""
    rules = narrowing(await call.body(NetworkBody))
    session = await call.done(show_egress)
    if session.network == "none" and rules is not None and not rules.get("allow"):
        return nothing()  # it reaches nothing already
    await call.done(change_egress, body=validated(EgressBody, {"only": rules}))
    return nothing()


def _rule(destination: str, member: str) -> dict[str, Any]:
    """A rule for an address, a network or a host. Raises: ValidationError."""
    try:
        return {"cidr": str(ipaddress.ip_network(destination, strict=False))}
    except ValueError:
        pass
    if "/" in destination or ":" in destination or member == "denyOut":
        raise ValidationError(
            f"{member} must have networks or addresses"
            + ("" if member == "denyOut" else ", or names of hosts"),
            field=member,
        )
    return {"host": destination}

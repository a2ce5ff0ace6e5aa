"""Signs in at an issuer of tokens by its device flow: in any browser, with a code to compare."""

import time
from typing import Any

from paddock.cli.exits import Failure, Status
from paddock.cli.output import note
from paddock.connect.contexts import Context, Renewal

_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
# What issuers that say nothing mean, by RFC 8628; nobody is waited for longer than the other.
_INTERVAL, _MOST_SECONDS = 5.0, 1800.0
_ENDS = {
    "expired_token": "nobody has signed in in time: run this again",
    "access_denied": "the sign-in was refused there",
}


def device_login(url: str, issuer: str | None) -> Context:
    """The context of whoever signs in, in a browser that this tells about.

    Raises: Failure, NoAddressError, PaddockError.
    """
    from paddock.connect.issuer import RefusedError, post_form
    from paddock.connect.renewal import context_of

    offer = _offered(url, issuer)
    resource = {} if offer["resource"] is None else {"resource": offer["resource"]}
    asked = {"client_id": offer["client_id"], "scope": offer["scope"], **resource}
    try:
        begun = post_form(offer["device_authorization_endpoint"], asked)
        note(f"open {begun['verification_uri']} and enter the code {begun['user_code']}")
        form = {
            "grant_type": _GRANT,
            "device_code": begun["device_code"],
            "client_id": offer["client_id"],
            **resource,
        }
        answer = _waited(offer["token_endpoint"], form, begun)
    except (KeyError, ValueError, TypeError) as error:
        if not isinstance(error, KeyError):
            raise
        raise Failure("the issuer's answer is not one of the device flow") from None
    except RefusedError as error:
        why = _ENDS.get(error.code, f"the issuer refuses: {error.code}")
        raise Failure(why, "the operator's issuer must permit the device flow") from None
    renewal = Renewal(
        *(offer["token_endpoint"], offer["client_id"], "", offer["resource"]),
        uses_id_token=offer["token"] == "id",  # noqa: S105
        until=0.0,
    )
    return context_of(url, answer, renewal)


def _waited(endpoint: str, form: dict[str, str], begun: dict[str, Any]) -> dict[str, Any]:
    """The answer when somebody has signed in. Raises: RefusedError, NoAddressError."""
    from paddock.connect.issuer import RefusedError, post_form

    interval = float(begun.get("interval", _INTERVAL))
    ends = time.monotonic() + min(float(begun.get("expires_in", _MOST_SECONDS)), _MOST_SECONDS)
    while time.monotonic() < ends:
        # The flow has no other way to wait.
        time.sleep(min(max(interval, 1.0), 60.0))
        try:
            return post_form(endpoint, form)
        except RefusedError as error:
            if error.code == "slow_down":
                interval += _INTERVAL
            elif error.code != "authorization_pending":
                raise
    raise RefusedError("expired_token")


def _offered(url: str, name: str | None) -> dict[str, Any]:
    """The issuer with that name, or the only one. Raises: Failure, PaddockError."""
    import asyncio

    from paddock.client import Paddock

    async def ask() -> dict[str, Any]:
        async with Paddock(url, "none") as paddock:
            return await paddock.request("GET", "/api/sign-in")

    items = asyncio.run(ask())["items"]
    names = "|".join(each["name"] for each in items)
    if not items:
        raise Failure("this control plane accepts only keys", "run this without --sso")
    if name is None and len(items) > 1:
        raise Failure("there are several issuers", f"--issuer {names}", Status.USAGE)
    found = [each for each in items if name in (None, each["name"])]
    if not found:
        raise Failure(f"there is no issuer {name!r}", f"--issuer {names}", Status.USAGE)
    offer: dict[str, Any] = found[0]
    if not offer["available"]:
        raise Failure(f"{offer['label']} does not answer now", "try again in a minute")
    if offer["device_authorization_endpoint"] is None or offer["token_endpoint"] is None:
        raise Failure(f"{offer['label']} has no device flow", "sign in with a key")
    return offer

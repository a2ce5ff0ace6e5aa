"""Puts the values of secrets into requests that name them by their placeholders. Pure."""

import base64
import binascii
import re
from collections.abc import Mapping

from orchestrator.record.secrets.request_head import RequestHead
from orchestrator.state.secret import PREFIX, Secret
from paddock.contract.words import OUTSIDE_NAME

_PLACEHOLDER = re.compile(rf"{PREFIX}({OUTSIDE_NAME})".encode())
_BASIC = re.compile(rb"(basic +)([A-Za-z0-9+/]+=*)", re.IGNORECASE)
# Its answer may repeat the request.
_ECHO = "TRACE"


def filled(head: RequestHead, usable: Mapping[str, Secret]) -> RequestHead:
    """The request with the values that it names and that its host may receive.

    Only requests that go out in TLS get any: the host's certificate is checked for them.
    """
    if not head.secure or head.method.upper() == _ECHO:
        return head
    for_host = {name: secret for name, secret in usable.items() if head.host in secret.hosts}
    if not for_host:
        return head
    used: dict[str, None] = {}
    headers = tuple(
        (field, _filled(field.decode().lower(), text, for_host, used))
        for field, text in head.headers
    )
    return head._replace(headers=headers, secrets=tuple(used))


def _filled(field: str, text: bytes, usable: Mapping[str, Secret], used: dict[str, None]) -> bytes:
    """The field's value; names of secrets that are put in are added to `used`."""

    def value(found: re.Match[bytes]) -> bytes:
        secret = usable.get(found[1].decode())
        if secret is None or secret.value is None or field not in secret.headers:
            return found[0]
        used[secret.name] = None
        return secret.value.get_secret_value().encode()

    basic = _BASIC.fullmatch(text) if field == "authorization" else None
    if basic is None:
        return _PLACEHOLDER.sub(value, text)
    try:
        pair = base64.b64decode(basic[2], validate=True)
    except binascii.Error:
        return text
    put_in = _PLACEHOLDER.sub(value, pair)
    return text if put_in == pair else basic[1] + base64.b64encode(put_in)

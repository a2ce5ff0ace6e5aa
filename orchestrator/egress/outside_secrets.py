"""Secrets that never enter a sandbox: its requests name them, and the proxy puts them in.

A request names a secret by its placeholder, `paddock:NAME`, in one of the secret's header fields.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Self

from pydantic import SecretStr

from orchestrator.config.operator_secrets import NAME_PATTERN, OperatorSecret, load_secret
from orchestrator.egress.request_head import RequestHead
from orchestrator.sessions.session import Session
from sandbox_agent.commands import allowed_variable

_PREFIX = "paddock:"
_PLACEHOLDER = re.compile(rf"{_PREFIX}({NAME_PATTERN})".encode())
_BASIC = re.compile(rb"(basic +)([A-Za-z0-9+/]+=*)", re.IGNORECASE)
# The answer to it may be the request.
_ECHO = "TRACE"


class OutsideSecrets:
    """The operator's secrets, with their values."""

    def __init__(
        self, secrets: Mapping[str, OperatorSecret], values: Mapping[str, SecretStr]
    ) -> None:
        self._secrets = dict(secrets)
        self._values = dict(values)

    @classmethod
    def load(cls, secrets: Mapping[str, OperatorSecret]) -> Self:
        """Reads the values. Raises: ConfigError."""
        return cls(secrets, {name: load_secret(name, each) for name, each in secrets.items()})

    def variables(self, session: Session) -> dict[str, str]:
        """The placeholders for the session's commands, by the variables that its level allows."""
        patterns = session.level.environment
        return {
            secret.variable: f"{_PREFIX}{name}"
            for name, secret in self._usable(session).items()
            if secret.variable is not None and allowed_variable(secret.variable, patterns)
        }

    def fill(self, session: Session, head: RequestHead) -> RequestHead:
        """The request with the values that it names and that its host may receive.

        Only inspected requests get any: the host's certificate is checked for them.
        """
        if not head.secure or head.method.upper() == _ECHO:
            return head
        usable = {
            name: secret
            for name, secret in self._usable(session).items()
            if head.host in secret.hosts
        }
        used: dict[str, None] = {}
        headers = tuple(
            (field, self._filled(field.decode().lower(), text, usable, used))
            for field, text in head.headers
        )
        return head._replace(headers=headers, secrets=tuple(used))

    def _usable(self, session: Session) -> dict[str, OperatorSecret]:
        return {
            name: secret
            for name, secret in self._secrets.items()
            if session.level.network == "egress"
            and session.level.name in secret.levels
            and (secret.keys is None or session.owner in secret.keys)
        }

    def _filled(
        self, field: str, text: bytes, usable: Mapping[str, OperatorSecret], used: dict[str, None]
    ) -> bytes:
        """The field's value; names of secrets that are put in are added to `used`."""

        def value(found: re.Match[bytes]) -> bytes:
            name = found[1].decode()
            if name not in usable or field not in usable[name].headers:
                return found[0]
            used[name] = None
            return self._values[name].get_secret_value().encode()

        basic = _BASIC.fullmatch(text) if field == "authorization" else None
        if basic is None:
            return _PLACEHOLDER.sub(value, text)
        try:
            pair = base64.b64decode(basic[2], validate=True)
        except binascii.Error:
            return text
        filled = _PLACEHOLDER.sub(value, pair)
        return text if filled == pair else basic[1] + base64.b64encode(filled)

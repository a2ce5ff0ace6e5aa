"""Typed arguments of commands: checks of the values that a pattern's named groups matched."""

import ipaddress
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

from orchestrator.rules.tools.patterns import Pattern
from orchestrator.rules.tools.scope import Scope
from sandbox_agent.decide.sanitize import INJECTION, injection

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_PORT = re.compile(r"[0-9]{1,5}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DURATION = re.compile(r"(?=[0-9])(?:\d+h)?(?:\d+m)?(?:\d+s)?(?:\d+ms)?", re.ASCII)
_OPTION = re.compile(r"[A-Z][A-Z0-9_]*\s+\S.*")
_DRIVE = re.compile(r"[A-Za-z]:")


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument, as in its table of the manifest; bounds that are None do not apply."""

    name: str
    type: str
    required: bool = True
    min: float | None = None
    max: float | None = None
    allowed: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    pattern: Pattern | None = None
    scope_check: bool = False
    bind: bool = False  # an approval covers the content of the file that it names
    description: str = ""  # for humans

    def refusal(self, value: str | None, scope: Scope) -> str | None:
        """Why a value is refused; None if it is accepted.

        A value of None means that there is none.
        """
        if value is None or value == "":
            return f"{self.name} is missing" if self.required else None
        # It separates the options of a Metasploit module.
        refused = INJECTION - {";"} if self.type == "msf_options" else INJECTION
        reason = injection(value, refused) or CHECKS[self.type](self, value, scope)
        return None if reason is None else f"{self.name}: {reason}"


def _string(argument: Argument, value: str, scope: Scope) -> str | None:
    if argument.pattern is not None and not argument.pattern.matches(value):
        return f"does not match {argument.pattern.text}"
    return None


def _integer(argument: Argument, value: str, scope: Scope) -> str | None:
    if not _INTEGER.fullmatch(value):
        return "must be an integer"
    return _bounds(argument, int(value))


def _number(argument: Argument, value: str, scope: Scope) -> str | None:
    if not _NUMBER.fullmatch(value) or not math.isfinite(float(value)):
        return "must be a finite number"
    return _bounds(argument, float(value))


def _port(argument: Argument, value: str, scope: Scope) -> str | None:
    if not _PORT.fullmatch(value) or not 1 <= int(value) <= 65535:
        return "must be a port, 1 to 65535"
    return _bounds(argument, int(value))


def _boolean(argument: Argument, value: str, scope: Scope) -> str | None:
    return None if value in ("true", "false") else "must be true or false"


def _enum(argument: Argument, value: str, scope: Scope) -> str | None:
    return None if value in argument.allowed else f"must be one of {', '.join(argument.allowed)}"


def _scope_target(argument: Argument, value: str, scope: Scope) -> str | None:
    return scope.refusal(value)


def _url(argument: Argument, value: str, scope: Scope) -> str | None:
    try:
        parts = urlsplit(value)
        port_is_valid = parts.port is None or parts.port > 0
    except ValueError:
        return "is not a URL"
    if not parts.scheme or not parts.hostname or not value.isascii() or " " in value:
        return "is not a URL"
    # Browsers, node and others treat \ as /, and end the host there.
    if "\\" in value or parts.netloc.count("@") > 1 or not port_is_valid:
        return "is a URL that programs read in different ways"
    if argument.schemes and parts.scheme not in argument.schemes:
        return f"must begin with {', '.join(argument.schemes)}"
    return scope.refusal(parts.hostname) if argument.scope_check else None


def _path(argument: Argument, value: str, scope: Scope) -> str | None:
    if value.startswith(("/", "\\", "~")) or _DRIVE.match(value):
        return "must be a relative path"
    if ".." in re.split(r"[/\\]", value):
        return "may not lead upwards"
    return None


def _ip_address(argument: Argument, value: str, scope: Scope) -> str | None:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return "must be an IP address"
    return None


def _cidr(argument: Argument, value: str, scope: Scope) -> str | None:
    try:
        ipaddress.ip_network(value, strict=False)
    except ValueError:
        return "must be a network, as in 10.0.0.0/8"
    return None if value.rpartition("/")[2].isdigit() and "/" in value else "must have a length"


def _msf_options(argument: Argument, value: str, scope: Scope) -> str | None:
    for option in value.split(";"):
        if option.strip() and not _OPTION.fullmatch(option.strip()):
            return "must be NAME VALUE, parted by ;"
    return None


def _duration(argument: Argument, value: str, scope: Scope) -> str | None:
    if _PLAIN.fullmatch(value) or _DURATION.fullmatch(value):
        return None
    return "must be seconds, or a duration as in 1h30m"


def _bounds(argument: Argument, value: float) -> str | None:
    if argument.min is not None and value < argument.min:
        return f"must be at least {argument.min:g}"
    if argument.max is not None and value > argument.max:
        return f"must be at most {argument.max:g}"
    return None


_PLAIN = re.compile(r"[0-9]{1,12}")
# By type. A credential file is a path: only the sandbox can tell whether it exists.
CHECKS: dict[str, Callable[[Argument, str, Scope], str | None]] = {
    "string": _string,
    "integer": _integer,
    "number": _number,
    "port": _port,
    "boolean": _boolean,
    "enum": _enum,
    "scope_target": _scope_target,
    "url": _url,
    "path": _path,
    "ip_address": _ip_address,
    "cidr": _cidr,
    "msf_options": _msf_options,
    "credential_file": _path,
    "duration": _duration,
    "regex_match": _string,
}

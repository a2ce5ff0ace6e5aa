"""Shared request fields and their checks."""

import base64
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import parse_qsl

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from paddock.contract.words import (
    ARGUMENT_COST,
    LEVEL_NAMES,
    LEVEL_PATTERN,
    MAX_ARGUMENT_BYTES,
    MOST_SIDE,
    SECRET_BYTES,
    argument_bytes,
)

KIB = 1024
MIB = 1024 * KIB
# The kernel's limit for one word without its terminator.
MAX_WORD_BYTES = 128 * KIB - 1
MAX_WORDS = 32_768
SIGNALS = {"HUP": 1, "INT": 2, "QUIT": 3, "KILL": 9, "USR1": 10, "USR2": 12, "TERM": 15} | {
    "CONT": 18,
    "STOP": 19,
}
# The characters of a label's key, a colon, and its value.
_MOST_LABEL = 128 + 1 + 1024
# All of a session's metadata, and a query for them, whose bytes may have three characters each.
MAX_METADATA_BYTES = 16 * KIB
_MOST_PAIRS = 4096
_FLAGS = {"0": "false", "1": "true"}
# No time is longer.
_MOST_TIME = 64
_DIGITS = re.compile(r"[0-9]{1,18}")


def sentence(text: str) -> PydanticCustomError:
    """An error whose message is the complete detail of the problem document."""
    return PydanticCustomError("sentence", "{text}", {"text": text})


@dataclass(frozen=True, slots=True)
class MaxBytes:
    """The maximum number of UTF-8 bytes of a text; in schemas, of characters."""

    limit: int

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "maxLength": self.limit}

    def _check(self, value: str) -> str:
        if len(value.encode()) > self.limit:
            raise ValueError(f"must have at most {self.limit} bytes")
        return value


def check_level(name: str, value: Any, info: ValidationInfo) -> None:
    """Checks a level's name. Raises: an error that names the field.

    The valid levels are the validation context's `levels`; without them, the packaged ones.
    """
    levels = (info.context or {}).get("levels", LEVEL_NAMES)
    if not isinstance(value, str) or value not in levels:
        raise sentence(f"{name} must be {'|'.join(levels)}")


def _level_or_null(name: str) -> BeforeValidator:
    def check(value: Any, info: ValidationInfo) -> Any:
        if value is not None:
            check_level(name, value, info)
        return value

    return BeforeValidator(check)


def _digits(value: Any) -> int:
    """Parses a query parameter: digits only, no sign, no white space, no underscore."""
    if not isinstance(value, str) or not _DIGITS.fullmatch(value):
        raise ValueError("must be a whole number")
    return int(value)


def _moment(value: Any) -> str:
    """Converts a time with a zone to the form of events: in UTC, with microseconds."""
    try:
        moment = datetime.fromisoformat(str(value)[: _MOST_TIME + 1])
        if moment.tzinfo is None:
            raise ValueError
        return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")
    except (ValueError, OverflowError):
        raise ValueError("must be a time such as 2026-03-04T09:30:00Z") from None


def _truth(value: Any) -> bool:
    if value not in ("true", "false"):
        raise ValueError("must be true or false")
    return bool(value == "true")


def _signal_number(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value in SIGNALS.values():
        return value
    number = SIGNALS.get(value.removeprefix("SIG")) if isinstance(value, str) else None
    if number is None:
        raise ValueError(f"must be one of {', '.join(SIGNALS)}, or its number")
    return number


def _label(value: Any) -> tuple[str, str]:
    if len(str(value)) > _MOST_LABEL:
        raise ValueError(f"must have at most {_MOST_LABEL} characters")
    key, colon, wanted = str(value).partition(":")
    if not key or not colon:
        raise ValueError("must be key:value")
    return key, wanted


def _metadata_size(value: dict[str, str]) -> dict[str, str]:
    size = sum(len(name.encode()) + len(text.encode()) for name, text in value.items())
    if size > MAX_METADATA_BYTES:
        raise ValueError(f"must have at most {MAX_METADATA_BYTES} bytes in all, names included")
    return value


def _pairs(value: Any) -> tuple[tuple[str, str], ...]:
    """Parses `name=text` pairs, joined by `&` and encoded as in a form."""
    text = str(value)
    if len(text) > _MOST_PAIRS:
        raise ValueError(f"must have at most {_MOST_PAIRS} characters")
    try:
        return tuple(parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict"))
    except ValueError:
        raise ValueError("must be NAME=TEXT pairs, joined by & and encoded as in a form") from None


def _argv_size(value: list[str]) -> list[str]:
    if argument_bytes(value, {}) > MAX_ARGUMENT_BYTES:
        raise ValueError(
            f"must have at most {MAX_ARGUMENT_BYTES} bytes in all,"
            f" {ARGUMENT_COST} for each word included"
        )
    return value


def _long_enough(value: str) -> str:
    if len(value.encode()) < SECRET_BYTES[0]:
        raise ValueError(
            f"must have at least {SECRET_BYTES[0]} bytes: shorter ones can't be cut out"
        )
    return value


LEVEL_SCHEMA = {
    "type": "string",
    "pattern": f"^{LEVEL_PATTERN}$",
    "maxLength": 32,
    "examples": list(LEVEL_NAMES),
}
_LEVEL_OR_NULL = WithJsonSchema({"anyOf": [LEVEL_SCHEMA, {"type": "null"}]})
PermissionLevel = Annotated[str | None, _level_or_null("permission_level"), _LEVEL_OR_NULL]
LevelChoice = Annotated[str | None, _level_or_null("level"), _LEVEL_OR_NULL]
ToolName = Annotated[str, Field(min_length=1, max_length=128)]
Whole = Annotated[int, Field(ge=0, lt=10**18), BeforeValidator(_digits)]
Positive = Annotated[int, Field(ge=1, lt=10**18), BeforeValidator(_digits)]
Moment = Annotated[
    str,
    BeforeValidator(_moment),
    WithJsonSchema(
        {
            "type": "string",
            "format": "date-time",
            "maxLength": _MOST_TIME,
            "examples": ["2026-03-04T09:30:00Z"],
        }
    ),
]
PageSize = Annotated[int, Field(ge=1, le=1000), BeforeValidator(_digits)]
MOST_DEPTH = 64
Depth = Annotated[int, Field(ge=1, le=MOST_DEPTH), BeforeValidator(_digits)]
Truth = Annotated[bool, BeforeValidator(_truth)]
Side = Annotated[int, Field(ge=1, le=MOST_SIDE), BeforeValidator(_digits)]
Flag = Annotated[bool, BeforeValidator(lambda value: _truth(_FLAGS.get(value, value)))]
Label = Annotated[
    tuple[str, str],
    BeforeValidator(_label),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": "^[^:]+:",
            "maxLength": _MOST_LABEL,
            "examples": ["team:search"],
        }
    ),
]
Signal = Annotated[
    int,
    BeforeValidator(_signal_number),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "enum": [*SIGNALS, *(f"SIG{name}" for name in SIGNALS)]},
                {"type": "integer", "enum": list(SIGNALS.values())},
            ]
        }
    ),
]
Reference = Annotated[str, Field(min_length=1, max_length=256)]
# Any text on one line. A colon ends it where sessions are found by a label, and an equals sign on
# the command line.
_LabelKey = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f:=]{1,128}$")]
Labels = Annotated[
    dict[_LabelKey, Annotated[str, Field(max_length=1024)]],
    Field(max_length=64, examples=[{"team": "search"}]),
]
# Any text at all, for clients that keep their own things with a session.
Metadata = Annotated[
    dict[
        Annotated[str, Field(min_length=1, max_length=256)], Annotated[str, Field(max_length=8192)]
    ],
    Field(max_length=64, examples=[{"user": "Anna Lindqvist", "note": "two lines\nof text"}]),
    AfterValidator(_metadata_size),
]
MetadataPairs = Annotated[
    tuple[tuple[str, str], ...],
    BeforeValidator(_pairs),
    WithJsonSchema(
        {"type": "string", "maxLength": _MOST_PAIRS, "examples": ["user=Anna+Lindqvist&shard=4"]}
    ),
]
_Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,255}$")]
Environment = Annotated[
    dict[_Variable, Annotated[str, MaxBytes(32 * KIB)]],
    Field(max_length=256, examples=[{"TZ": "UTC"}]),
]
_SecretValue = Annotated[
    str,
    MaxBytes(SECRET_BYTES[1]),
    AfterValidator(_long_enough),
    Field(json_schema_extra={"format": "password", "writeOnly": True, "minLength": 3}),
]
Lease = Annotated[
    str,
    MaxBytes(4 * KIB),
    AfterValidator(_long_enough),
    Field(json_schema_extra={"format": "password", "writeOnly": True, "minLength": 3}),
]
Secrets = Annotated[
    dict[_Variable, _SecretValue],
    Field(max_length=16, repr=False, examples=[{"SECRET_TOKEN": "a value of 8 bytes or more"}]),
]


_MOST_BASE64 = 4 * -(-MIB // 3)


def _bytes_of(value: Any) -> Any:
    """Decodes base64. Raises: ValueError."""
    if not isinstance(value, str):
        raise ValueError("must be a string")
    if len(value) > _MOST_BASE64:
        raise ValueError(f"must have at most {MIB} bytes")
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise ValueError("must be base64") from None


def _input_size(value: bytes) -> bytes:
    if len(value) > MIB:
        raise ValueError(f"must have at most {MIB} bytes")
    return value


Base64 = Annotated[
    bytes,
    BeforeValidator(_bytes_of),
    AfterValidator(_input_size),
    WithJsonSchema(
        {
            "type": "string",
            "contentEncoding": "base64",
            "maxLength": _MOST_BASE64,
            "examples": ["AAH/"],
        }
    ),
]
CommandLine = Annotated[str, Field(min_length=1), MaxBytes(64 * KIB)]
_Argument = Annotated[str, MaxBytes(MAX_WORD_BYTES)]
Argv = Annotated[
    list[_Argument],
    Field(min_length=1, max_length=MAX_WORDS, examples=[["grep", "-rn", "TODO", "src"]]),
    AfterValidator(_argv_size),
]
# Seconds. The least is a millisecond, in which the agent counts.
TimeLimit = Annotated[float, Field(ge=0.001, le=10**9, allow_inf_nan=False)]
# People take longer, but connections don't last: repeating the request continues to wait.
Wait = Annotated[float, Field(ge=0, le=600, allow_inf_nan=False)]
ToolArguments = Annotated[dict[str, Annotated[str, MaxBytes(8 * KIB)]], Field(max_length=64)]
Directory = Annotated[str, MaxBytes(4096)]
# Paths longer than this can't be opened on Linux. Queries have no room for more.
WorkspacePath = Annotated[str, Field(min_length=1), MaxBytes(4096)]
# As lists have it, in a body: a byte that is not UTF-8 takes four characters.
ListedPath = Annotated[str, Field(min_length=1), MaxBytes(4 * 4096)]
Glob = Annotated[str, Field(min_length=1, max_length=1024, examples=["*.{py,toml}"])]

"""The base of all response models."""

import json
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationInfo,
)
from pydantic_core import (
    CoreSchema,
    PydanticCustomError,
    PydanticSerializationError,
    core_schema,
)

from paddock.contract.words import LEVEL_PATTERN

# The validation context of a client, whose server may be newer: times become `datetime`s, and
# unknown values are kept. On the server, times are text, and unknown values are errors.
READER = "reader"


class Model(BaseModel):
    """A JSON object of a response: every member is always present, null if it has no value."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)

    # Whether members may be missing, in this model or in nested ones.
    SPARSE: ClassVar[bool] = False

    @property
    def raw(self) -> dict[str, Any]:
        """The given members in JSON form, including unknown ones of a newer server."""
        return {name: _plain(value) for name, value in self if name in self.model_fields_set}

    def encode(self) -> bytes:
        """JSON on one line, without missing members."""
        try:
            return self.__pydantic_serializer__.to_json(self, exclude_unset=self.SPARSE)
        except PydanticSerializationError:
            # File names may contain lone surrogates, which JSON can escape but UTF-8 can't encode.
            members = self.model_dump(mode="python", exclude_unset=self.SPARSE)
            return json.dumps(_plain(members), separators=(",", ":"), allow_nan=False).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Model):
        return value.raw
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return _text(value) if isinstance(value, datetime) else value


def example(value: dict[str, Any]) -> ConfigDict:
    """The model configuration with this example."""
    return ConfigDict(json_schema_extra={"examples": [value]})


def model_example(model: type[Model]) -> dict[str, Any]:
    """The example of a model that has one."""
    extra: Any = model.model_config["json_schema_extra"]
    value: dict[str, Any] = extra["examples"][0]
    return value


class _Moment:
    """RFC 3339 in UTC with microseconds; a `datetime` for readers."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        serialized = core_schema.plain_serializer_function_ser_schema(
            _text, return_schema=core_schema.str_schema(), when_used="json"
        )
        moment = core_schema.datetime_schema(
            strict=True, tz_constraint="aware", serialization=serialized
        )
        known = core_schema.union_schema(
            [core_schema.str_schema(pattern=_TIME, strict=True), moment],
            mode="left_to_right",
            custom_error_type="time",
            custom_error_message="a time as RFC 3339 has it, in UTC with microseconds",
        )
        return core_schema.with_info_before_validator_function(_moment, known)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"type": "string", "format": "date-time"}


def _moment(value: Any, info: ValidationInfo) -> Any:
    if info.context is not READER or not isinstance(value, str):
        return value
    return datetime.fromisoformat(value)


def _text(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


class _Words:
    """One of several values; a newer server may have more."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        text = core_schema.str_schema(strict=True)
        newer = core_schema.with_info_after_validator_function(_newer, text)
        return core_schema.union_schema(
            [handler(source), newer],
            mode="left_to_right",
            custom_error_type="word",
            custom_error_message="one of the words that it may be",
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        # As a separate schema, which may be referenced.
        return handler(core_schema.chain_schema([schema["choices"][0]]))


def _newer(word: str, info: ValidationInfo) -> str:
    if info.context is not READER:
        raise PydanticCustomError("word", "not a known word")
    return word


_TIME = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$"
Time = Annotated[datetime, _Moment()]
WORDS = _Words()
RiskTier = Annotated[Literal["info", "low", "medium", "high", "critical"], WORDS]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", max_length=64)]
LevelName = Annotated[str, Field(pattern=f"^{LEVEL_PATTERN}$", max_length=32)]
Count = Annotated[int, Field(ge=0)]

"""What all response models have in common."""

import json
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic_core import PydanticSerializationError

from paddock.contract.words import LEVEL_PATTERN


class Model(BaseModel):
    """A JSON object of a response: every member is always there, null where there is nothing."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    # Whether members may be left out, its own or those of models in it.
    SPARSE: ClassVar[bool] = False

    def encode(self) -> bytes:
        """JSON on one line; members that were left out are not in it."""
        try:
            return self.__pydantic_serializer__.to_json(self, exclude_unset=self.SPARSE)
        except PydanticSerializationError:
            # Names of files may have lone surrogates, which JSON can escape and UTF-8 can't have.
            return json.dumps(self.model_dump(exclude_unset=True), separators=(",", ":")).encode()


def example(value: dict[str, Any]) -> ConfigDict:
    """The configuration of a model that is shown with this example."""
    return ConfigDict(json_schema_extra={"examples": [value]})


def model_example(model: type[Model]) -> dict[str, Any]:
    """The example of a model that was given one."""
    extra: Any = model.model_config["json_schema_extra"]
    value: dict[str, Any] = extra["examples"][0]
    return value


# RFC 3339, UTC, microseconds.
Time = Annotated[
    str,
    Field(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z$"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
LevelName = Annotated[str, Field(pattern=f"^{LEVEL_PATTERN}$")]
Count = Annotated[int, Field(ge=0)]

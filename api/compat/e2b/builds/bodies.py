"""What E2B's SDKs send about templates that they build."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from paddock.contract.fields import sentence
from paddock.contract.requests import LARGE_BODY, Body, Query

_LENIENT = ConfigDict(extra="ignore")

_Name = Annotated[str, Field(min_length=1, max_length=130)]
TAG = "[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
Tag = Annotated[str, StringConstraints(pattern=f"^{TAG}$")]
_Line = Annotated[str, Field(max_length=64 * 1024)]
Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-zA-Z_-]{1,128}$")]


class TemplateBody(Body):
    """A template that is to be built: `name` or `name:tag`, and more tags.

    Older SDKs call the name `alias`. A sandbox has its level's processors and memory, whatever is
    asked for here.
    """

    model_config = _LENIENT

    name: _Name | None = None
    alias: _Name | None = None
    tags: Annotated[list[Tag], Field(max_length=16)] | None = None


class TagsBody(Body):
    """Tags that the build `target`, a `name` or `name:tag`, is to have, too."""

    model_config = _LENIENT

    target: _Name
    tags: Annotated[list[Tag], Field(min_length=1, max_length=16)]


class RemovedTagsBody(Body):
    """Tags that the template `name` is not to have any more."""

    model_config = _LENIENT

    name: _Name
    tags: Annotated[list[Tag], Field(min_length=1, max_length=16)]


class StepBody(Body):
    """One step. `filesHash` names the files that a copy has uploaded.

    `force`: it and all after it are carried out, though an earlier build has done the same.
    """

    model_config = _LENIENT

    type: Literal["COPY", "ENV", "RUN", "WORKDIR", "USER"]
    args: Annotated[list[_Line], Field(max_length=512)] | None = None
    files_hash: Hash | None = Field(default=None, alias="filesHash")
    force: bool | None = None


class BuildBody(Body):
    """What a template is built from: an image or a template, and steps.

    `force`: all of them are carried out, though an earlier build has done the same.
    """

    model_config = _LENIENT
    MOST_BYTES = LARGE_BODY

    from_image: _Name | None = Field(default=None, alias="fromImage")
    from_template: _Name | None = Field(default=None, alias="fromTemplate")
    steps: Annotated[list[StepBody], Field(max_length=256)] | None = None
    start: _Line | None = Field(default=None, alias="startCmd")
    ready: _Line | None = Field(default=None, alias="readyCmd")
    force: bool | None = None

    @model_validator(mode="before")
    @classmethod
    def _nothing_else(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("fromImageRegistry"):
            raise sentence(
                "fromImageRegistry is not served: the operator adds the image, "
                "`paddock images add NAME REF`, with the engine's own credentials"
            )
        return value


class StatusQuery(Query):
    """From which entry of its log a build is shown."""

    model_config = _LENIENT

    offset: Annotated[int, Field(ge=0, le=2**31)] = Field(default=0, alias="logsOffset")
    limit: Annotated[int, Field(ge=1, le=100)] = 100

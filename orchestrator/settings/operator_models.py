"""The operator's language models: where each is served, with which key, and what it costs."""

import re
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    model_validator,
)

from orchestrator.settings.operator_files import read_secret
from orchestrator.settings.values import check_encrypted, endpoint_parts
from paddock.contract.words import MODEL_NAME, MOST_CALL_TOKENS

_MOST_KEY_BYTES = 4096
_KEY = re.compile(rf"[\x21-\x7e]{{1,{_MOST_KEY_BYTES}}}")
_KEY_RULE = f"must have 1 to {_MOST_KEY_BYTES} visible ASCII characters, and no other"


def _endpoint(value: str) -> str:
    """Returns it. Only addresses near this host need no TLS: no key may travel in the clear."""
    parts = endpoint_parts(value)
    if parts.query or parts.fragment:
        raise ValueError("must not have a query or a fragment")
    check_encrypted(parts)
    return value


def _key(value: SecretStr) -> SecretStr:
    if not _KEY.fullmatch(value.get_secret_value()):
        raise ValueError(_KEY_RULE)
    return value


# So few digits that products with numbers of tokens are exact.
_Price = Annotated[Decimal, Field(ge=0, le=1_000_000, max_digits=15)]


class ModelPrices(BaseModel):
    """Dollars for a million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    input: _Price
    output: _Price


class OperatorModel(BaseModel):
    """A model at an endpoint that speaks OpenAI's protocol."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    # Up to the version: `/chat/completions` is added.
    url: Annotated[str, AfterValidator(_endpoint)]
    # If neither is set, the endpoint needs no key.
    key: Annotated[SecretStr, AfterValidator(_key)] | None = None
    key_file: Path | None = None
    # The endpoint's name of the model; None: its name on the list.
    model: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    prices: ModelPrices
    # The most tokens of one answer; None: only the session's policy limits them.
    max_tokens: Annotated[int, Field(ge=1, le=MOST_CALL_TOKENS)] | None = None
    # Seconds for one call, its repetitions included.
    timeout: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)] = 120
    # The endpoint's name for the limit of tokens.
    limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    # Whether the model gets back the further members of its answers, such as reasoning.
    send_back: bool = True
    # Whether the endpoint is asked to state the usage of a stream (`stream_options`).
    stream_usage: bool = True

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if self.key is not None and self.key_file is not None:
            raise ValueError("must have either key or key_file")
        return self


def checked_models(models: dict[str, OperatorModel]) -> dict[str, OperatorModel]:
    """Returns them. Raises: ValueError for a name."""
    for name in models:
        if not re.fullmatch(MODEL_NAME, name):
            raise ValueError(f"{name[:64]!r} is not a name of letters, digits and . _ : / -")
    return models


def load_key(name: str, model: OperatorModel) -> SecretStr | None:
    """The model's present key; may block. Raises: ConfigError that does not contain it."""
    if model.key_file is None:
        return model.key
    return read_secret(
        f"models: {name}", model.key_file, lambda text: _key(SecretStr(text)), 2 * _MOST_KEY_BYTES
    )

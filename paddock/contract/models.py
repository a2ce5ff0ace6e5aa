"""Language models that turns may call."""

from typing import Any

from pydantic import Field

from paddock.contract.base import Model, example

_MODEL: dict[str, Any] = {
    "name": "small",
    "prices": {"input": 0.15, "output": 0.6},
    "max_tokens": 4096,
}


class ModelPrices(Model):
    """Dollars for a million tokens."""

    input: float
    output: float


class LanguageModel(Model):
    """A model of the operator's list."""

    model_config = example(_MODEL)

    name: str
    prices: ModelPrices
    max_tokens: int | None = Field(
        description="The most tokens of one answer; null: only the session's policy limits them."
    )


class LanguageModels(Model):
    """The operator's models, in the order of the list; the first one is the default."""

    model_config = example({"items": [_MODEL], "next": None})

    items: list[LanguageModel]
    next: None

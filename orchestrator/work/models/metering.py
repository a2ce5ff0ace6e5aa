"""What a call of a model uses and costs. Pure functions, and a meter that its caller keeps."""

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, TypeGuard

from orchestrator.settings.operator_models import ModelPrices
from orchestrator.work.models.messages import Prompt
from orchestrator.work.models.tool_calls import AnswerCalls

# No endpoint means more than this; it would be nonsense.
_MOST_TOKENS = 10**9
# What an endpoint adds to each message.
_PER_MESSAGE = 16


class TokenUsage(NamedTuple):
    """Tokens of one call. `estimated`: the endpoint did not say; these are at least as many."""

    input_tokens: int
    output_tokens: int
    estimated: bool

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.input_tokens + self.output_tokens


class Completion(NamedTuple):
    """A model's whole answer. `finish_reason` is the endpoint's word, such as `stop`, `length`.

    `extra` is what it said beside text and calls, as a message keeps it.
    """

    text: str
    input_tokens: int
    output_tokens: int
    cost_microdollars: int
    finish_reason: str
    estimated: bool
    called: AnswerCalls = AnswerCalls()
    extra: str = ""


NOTHING = TokenUsage(0, 0, estimated=False)


@dataclass(slots=True)
class CallMeter:
    """What one call has used, at any time: also if it fails or is cancelled on its way."""

    prices: ModelPrices | None = None
    usage: TokenUsage = NOTHING

    @property
    def cost_microdollars(self) -> int:
        """The cost until now."""
        return 0 if self.prices is None else cost(self.usage, self.prices)


def cost(usage: TokenUsage, prices: ModelPrices) -> int:
    """The cost in whole micro-dollars, rounded up: a dollar for a million is a millionth for one.

    Exact whatever the prices are.
    """
    received, sent = Decimal(usage.input_tokens), Decimal(usage.output_tokens)
    return math.ceil(received * prices.input + sent * prices.output)


def estimated(prompt: Prompt, output_bytes: int) -> TokenUsage:
    """The most tokens that a call may have used: no tokenizer makes more of them than bytes."""
    size = sum(len(text.encode(errors="replace")) for text in prompt.texts)
    size += _PER_MESSAGE * len(prompt.messages)
    return TokenUsage(size, output_bytes, estimated=True)


def stated(usage: Any) -> TokenUsage | None:
    """The usage as an endpoint states it; None if that is missing or nonsense."""
    if not isinstance(usage, dict):
        return None
    received, sent = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not (_is_count(received) and _is_count(sent)):
        return None
    return TokenUsage(received, sent, estimated=False)


def most(one: TokenUsage | None, other: TokenUsage | None) -> TokenUsage | None:
    """The larger of two usages: some endpoints state a usage repeatedly, as it grows."""
    if one is None or other is None:
        return one or other
    received = max(one.input_tokens, other.input_tokens)
    return TokenUsage(received, max(one.output_tokens, other.output_tokens), estimated=False)


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _MOST_TOKENS

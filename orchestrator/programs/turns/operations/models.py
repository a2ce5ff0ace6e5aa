"""Operations that call language models, which the operator configures."""

from collections.abc import Callable
from typing import Any

from orchestrator.programs.turns.json_values import parsed
from orchestrator.programs.turns.operations.context import OperationContext
from orchestrator.programs.turns.operations.turn_operation import Done, Needed, turn_operation
from orchestrator.programs.turns.outcome import needs
from orchestrator.programs.turns.programs import OperationFailed
from orchestrator.work.models.errors import ModelError
from orchestrator.work.models.messages import ModelMessage, Prompt
from orchestrator.work.models.metering import CallMeter, Completion
from paddock.contract.words import Kind

# The longest call; a model's own time-out is usually shorter.
_SECONDS = 600.0
_INTENT = (
    "You turn a request into an intent. Answer with one JSON object and nothing else: "
    '{"intent": "a short verb phrase", "operations": [...], "questions": [...]}.'
)


async def complete(
    context: OperationContext, prompt: str, max_tokens: int = 0, model: str = ""
) -> Done:
    """A model's answer to a prompt; tokens and cost count for the session's budget."""
    asked = Prompt([ModelMessage("user", prompt)])
    answer, recorded = await call_model(context, asked, max_tokens, model)
    return Done(answer.text, recorded)


async def intent(
    context: OperationContext, request: str, max_tokens: int = 0, model: str = ""
) -> Done:
    """What a request wants, by a model: intent, operations and questions, as lists of pairs."""
    asked = Prompt([ModelMessage("system", _INTENT), ModelMessage("user", request)])
    answer, recorded = await call_model(context, asked, max_tokens, model)
    try:
        return Done(parsed(answer.text), recorded)
    except ValueError:
        raise OperationFailed("llm.intent: the model did not answer with JSON") from None


async def call_model(
    context: OperationContext,
    prompt: Prompt,
    max_tokens: int,
    model: str,
    on_text: Callable[[str], None] = lambda _: None,
) -> tuple[Completion, dict[str, Any]]:
    """Calls a model; returns its answer and what is recorded. The call is paid for however it ends.

    `on_text` gets the pieces of its text. Raises: Needed, OperationFailed.
    """
    models, meter = context.services.models, CallMeter()
    name = model or next(iter(models.configured), "")
    if not name:
        raise Needed(needs("needs-primitive", "the operator has configured no language model"))
    most = _most_tokens(context, max_tokens)
    try:
        answer = await models.complete(name, prompt, most, _SECONDS, meter, on_text)
    except ModelError as error:
        raise OperationFailed(str(error)) from None
    finally:
        _pay(context, meter)
    recorded: dict[str, Any] = {
        "model": name,
        "input_tokens": answer.input_tokens,
        "output_tokens": answer.output_tokens,
        "cost_microdollars": answer.cost_microdollars,
        "estimated": answer.estimated,
        "finish_reason": answer.finish_reason,
    }
    return answer, recorded


def _most_tokens(context: OperationContext, asked: int) -> int:
    """The most tokens of the answer: as asked, within the policy and what is left of budgets."""
    most = context.scopes.policy.llm_rules.max_tokens_per_call
    left = (context.session.budget.left(Kind.TOKENS), context.scopes.left("tokens"))
    return max(1, min(asked if asked > 0 else most, most, *(n for n in left if n is not None)))


def _pay(context: OperationContext, meter: CallMeter) -> None:
    tokens, cost = meter.usage.input_tokens + meter.usage.output_tokens, meter.cost_microdollars
    context.log.tokens += tokens
    context.log.cost += cost
    context.session.budget.consume(Kind.TOKENS, tokens)
    context.session.budget.consume(Kind.COST, cost)


OPERATIONS = (turn_operation("llm.complete", complete), turn_operation("llm.intent", intent))

"""A tick of a run: its model is called with the timeline, and with the tools that it may use."""

from orchestrator.programs.turns.operations.context import OperationContext
from orchestrator.programs.turns.operations.models import call_model
from orchestrator.programs.turns.operations.turn_operation import Done, turn_operation
from orchestrator.programs.turns.programs import OperationFailed
from orchestrator.programs.turns.runs.prompt import system_prompt
from orchestrator.programs.turns.runs.toolbox import offered, toolbox
from orchestrator.work.models.messages import ModelMessage, Prompt


async def take_tick(context: OperationContext, tick: int) -> Done:
    """A model's answer to the timeline; what it says and calls is added to it."""
    conversation = context.conversation
    if conversation is None:
        raise OperationFailed("only a run has ticks")
    conversation.tick = tick
    conversation.feed.add("tick", tick=tick)
    run = conversation.run
    if conversation.remembered is None:
        ask = context.services.memory.beginning
        conversation.remembered = await ask(context.principal, context.session)
    system = ModelMessage("system", system_prompt(run.system, conversation.remembered))
    listed = context.services.session_tools.of_session(context.principal, context.session)
    conversation.tools = toolbox(listed, run.tools)
    permitted = offered(conversation.tools, context.scopes.policy, context.session.level)
    tools = [each.shown() for each in permitted]
    prompt = Prompt([system, *conversation.messages], tools)
    answer, told = await call_model(
        context, prompt, 0, run.model, lambda piece: conversation.feed.say(tick, piece)
    )
    called = answer.called
    said = ModelMessage("assistant", answer.text, called.calls, extra=answer.extra)
    message = await conversation.add(said)
    conversation.answered(message, answer)
    names = [each.name for each in message.calls]
    return Done(message.content, {**told, "calls": names, "dropped_calls": called.dropped})


# It needs the same permission, and is on record under the same name, as other calls of models.
TICK = turn_operation("llm.complete", take_tick)

"""The operator's models, and calls of them."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.threads import Threads
from orchestrator.settings.operator_models import OperatorModel, load_key
from orchestrator.work.models.endpoint import Endpoint, ModelCall
from orchestrator.work.models.errors import ModelError, ModelFailure
from orchestrator.work.models.messages import Prompt
from orchestrator.work.models.metering import CallMeter, Completion
from orchestrator.work.models.tool_calls import AnswerCalls

log = logging.getLogger(__name__)

# The time limit for reading a key's file.
_KEY_SECONDS = 10.0
# What an endpoint that needs no key gets.
_NO_KEY = "none"
# Characters in all messages of a call.
_MOST_PROMPT = 4 * 1024 * 1024


class Models:
    """Calls the models of the settings, of which there may be none.

    Neither their keys nor their URLs appear in errors.
    """

    def __init__(self, models: Mapping[str, OperatorModel]) -> None:
        self.configured = dict(models)
        self._threads = Threads("keys of models", 4)
        self._endpoint: Endpoint | None = None

    async def complete(
        self,
        name: str,
        prompt: Prompt,
        max_tokens: int,
        seconds: float,
        meter: CallMeter | None = None,
        heard: Callable[[str], None] = lambda _: None,
    ) -> Completion:
        """The whole answer; `heard` gets its pieces; the other arguments are those of `stream`.

        Raises: ModelError.
        """
        meter = meter or CallMeter()
        texts: list[str] = []
        async with aclosing(self.stream(name, prompt, max_tokens, seconds, meter)) as pieces:
            async for piece in pieces:
                if texts:
                    heard(texts[-1])
                texts.append(piece)
        *texts, finished = texts
        usage = meter.usage
        return Completion(
            text="".join(texts),
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost_microdollars=meter.cost_microdollars,
            finish_reason=finished,
            estimated=usage.estimated,
            called=getattr(finished, "called", AnswerCalls()),
            extra=getattr(finished, "extra", ""),
        )

    async def stream(
        self,
        name: str,
        prompt: Prompt,
        max_tokens: int,
        seconds: float,
        meter: CallMeter,
    ) -> AsyncGenerator[str]:
        """The pieces of the answer as they come; the last one is why it ended, not a part of it.

        It takes at most these seconds, and no more than the model's time-out. `meter` has at any
        time what is used; the caller charges that, however this ends. Raises: ModelError.
        """
        model = self._named(name)
        if sum(map(len, prompt.texts)) > _MOST_PROMPT:
            raise ModelError(
                ModelFailure.TOO_LARGE, f"the messages have more than {_MOST_PROMPT} characters"
            )
        meter.prices = model.prices
        until = asyncio.get_running_loop().time() + min(seconds, model.timeout)
        key = await self._key(name, model)
        most = min(max_tokens, model.max_tokens or max_tokens)
        if self._endpoint is None:
            self._endpoint = Endpoint()
        call = ModelCall(name, model, key, prompt, most, until)
        pieces = self._endpoint.stream(call, meter)
        async with aclosing(pieces):
            try:
                async for piece in pieces:
                    yield piece
            except ModelError as error:
                raise ModelError(error.failure, f"model {name}: {error}") from None

    async def close(self) -> None:
        """Closes the connections."""
        if self._endpoint is not None:
            await self._endpoint.close()

    def _named(self, name: str) -> OperatorModel:
        model = self.configured.get(name)
        if model is None:
            named = ", ".join(self.configured) or "none"
            raise ModelError(
                ModelFailure.UNKNOWN, f"there is no model {name[:128]}: there are {named}"
            )
        return model

    async def _key(self, name: str, model: OperatorModel) -> str:
        try:
            key = model.key
            if model.key_file is not None:
                key = await self._threads.call(lambda: load_key(name, model), _KEY_SECONDS)
        except (ConfigError, TimeoutError) as error:
            log.error("the key of a model can't be read: %s", error)
            raise ModelError(ModelFailure.KEY, f"model {name}: its key can't be read") from None
        return _NO_KEY if key is None else key.get_secret_value()

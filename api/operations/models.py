"""The language models that turns may call."""

from api.shape.access import Access
from api.shape.context import Context
from api.shape.operation import operation
from orchestrator.work.models.models import Models
from paddock.contract.models import LanguageModel, LanguageModels, ModelPrices


@operation(
    "GET",
    "/api/models",
    Access.WORK,
    tag="Policies",
    summary="List the language models that turns may call",
    answers="The models.",
)
async def list_models(context: Context, models: Models) -> LanguageModels:
    """The operator's models with their prices. Where they are served is not shown."""
    return LanguageModels(
        items=[
            LanguageModel(
                name=name,
                prices=ModelPrices(
                    input=float(model.prices.input), output=float(model.prices.output)
                ),
                max_tokens=model.max_tokens,
            )
            for name, model in models.configured.items()
        ],
        next=None,
    )

"""Members of the contract's models, from what the domain has under the same names."""

from typing import Any

from paddock.contract.base import Model


def members(model: type[Model], shown: object, **others: Any) -> dict[str, Any]:
    """Every member of `model`: those of `others`, and else what `shown` has of that name."""
    return {
        name: getattr(shown, name) for name in model.model_fields if name not in others
    } | others

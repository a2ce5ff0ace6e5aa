"""Hooks and their deliveries as the API shows them, without secrets."""

import json
from typing import Any

from api.shape.objects import members
from orchestrator.operate.hooks.delivery_rows import Delivery, DeliveryCounts
from orchestrator.operate.hooks.hook import Hook
from paddock.contract import hooks as contract


def hook_members(shown: Hook, counts: DeliveryCounts) -> dict[str, Any]:
    """The members of a hook."""
    return members(
        contract.Hook,
        shown,
        events=list(shown.events),
        lost=shown.secret is None,
        waiting=counts.waiting,
        undelivered=counts.undelivered,
    )


def delivery(shown: Delivery) -> contract.HookDelivery:
    """One delivery."""
    return contract.HookDelivery.model_validate(
        members(
            contract.HookDelivery,
            shown,
            hook=shown.hook_id,
            session=shown.session_id,
            message=json.loads(shown.body),
        )
    )

"""Models over HTTP: names and prices, and nothing else."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.operate.checks.state import check_policy
from orchestrator.settings.operator_models import OperatorModel
from orchestrator.settings.settings import Settings
from paddock.client import Paddock
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, Api

KEY = "sk-a-key-that-nobody-sees"
URL = "https://models.example.org/v1"
MODELS: dict[str, Any] = {
    "small": {"url": URL, "key": KEY, "prices": {"input": 0.15, "output": 0.6}, "max_tokens": 500},
    "org/large:1": {"url": URL, "key_file": "/missing", "prices": {"input": 3, "output": 15}},
}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    found = {name: OperatorModel.model_validate(model) for name, model in MODELS.items()}
    return settings.model_copy(update={"models": found})


async def test_models_are_listed_for_agents_without_their_endpoints(api: Api) -> None:
    session = await api.session()
    for key in (ADMIN_KEY, OPERATOR_KEY, session["handle"]):
        answer = await api.json("GET", "/api/models", key=key)
        assert answer == {
            "items": [
                {"name": "small", "prices": {"input": 0.15, "output": 0.6}, "max_tokens": 500},
                {
                    "name": "org/large:1",
                    "prices": {"input": 3.0, "output": 15.0},
                    "max_tokens": None,
                },
            ],
            "next": None,
        }
    async with Paddock(str(api.server.make_url("/")), OPERATOR_KEY) as paddock:
        assert [model.name for model in await paddock.models.list()] == list(MODELS)


def test_the_doctor_tells_of_a_key_that_can_t_be_read(settings: Settings, tmp_path: Path) -> None:
    found = check_policy(settings)
    assert "models: org/large:1: /missing: No such file or directory" in found.detail
    assert KEY not in str(found)

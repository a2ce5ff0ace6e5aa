"""The operator's list of models, and what their calls cost. Nothing is called."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.config_error import ConfigError
from orchestrator.settings.operator_models import ModelPrices, OperatorModel, load_key
from orchestrator.settings.settings import Settings, load_settings
from orchestrator.work.models.messages import ModelMessage, Prompt
from orchestrator.work.models.metering import TokenUsage, cost, estimated, stated

PRICES = {"input": 0.15, "output": 0.6}
ENTRY = {"url": "https://api.example.org/v1", "prices": PRICES}


def test_they_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "PADDOCK_MODELS",
        '{"small": {"url": "https://a.example/v1", "key": "sk-1", "model": "m-1", "max_tokens": 9,'
        ' "prices": {"input": 0.15, "output": 0.6}, "timeout": 5}}',
    )
    settings = load_settings()
    (model,) = settings.models.values()
    assert (model.model, model.max_tokens, model.timeout) == ("m-1", 9, 5)
    assert model.prices == ModelPrices(input=Decimal("0.15"), output=Decimal("0.6"))
    assert "sk-1" not in repr(settings)
    assert "sk-1" not in settings.model_dump_json()


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.org/v1",
        "https://[2001:db8::1]:8443/v1",
        "http://localhost:11434/v1",
        "http://127.0.0.1:8000",
        "http://[::1]:8000/v1",
        "http://10.1.2.3/v1",
        "http://192.168.1.5:80/v1",
    ],
)
def test_a_url_is_taken(url: str) -> None:
    assert OperatorModel.model_validate({**ENTRY, "url": url}).url == url


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"url": "http://api.example.org/v1"}, "models.m.url: must be https"),
        ({"url": "http://127.0.0.1.example.org/"}, "must be https"),
        ({"url": "http://169.254.169.254/v1"}, "must be https"),
        ({"url": "http://8.8.8.8/v1"}, "must be https"),
        ({"url": "http://localhost.example.org/v1"}, "must be https"),
        ({"url": "https://user:pass@a.example/v1"}, "without a user"),
        ({"url": "https://a.example/v1?key=x"}, "must not have a query"),
        ({"url": "https://a.example:99999/v1"}, "port between"),
        ({"url": "ftp://a.example"}, "must look like"),
        ({"key": "with space"}, "visible ASCII"),
        ({"key": "x\ny"}, "visible ASCII"),
        ({"key": ""}, "visible ASCII"),
        ({"key": "x", "key_file": "/k"}, "either key or key_file"),
        ({"prices": {"input": -1, "output": 0}}, "models.m.prices.input"),
        ({"prices": {"input": 1}}, "models.m.prices.output"),
        ({"prices": {"input": "NaN", "output": 0}}, "models.m.prices.input"),
        ({"max_tokens": 0}, "models.m.max_tokens"),
        ({"timeout": 0}, "models.m.timeout"),
        ({"timeout": 4000}, "models.m.timeout"),
        ({"typo": 1}, "no such setting"),
    ],
)
def test_a_bad_entry_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    monkeypatch.setenv("PADDOCK_MODELS", json.dumps({"m": {**ENTRY, **change}}))
    with pytest.raises(ConfigError) as caught:
        load_settings()
    text = str(caught.value).replace("PADDOCK_MODELS: ", "models.")
    assert said in text
    if key := change.get("key"):
        assert key not in text.replace("either key", "")


def test_a_name_is_plain() -> None:
    with pytest.raises(ValueError, match="is not a name of letters"):
        Settings.model_validate({"models": {"a b": ENTRY}})


def test_a_key_in_a_file_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "key"
    model = OperatorModel.model_validate({**ENTRY, "key_file": file})
    for text in ("first\n", "second\n"):
        file.write_text(text)
        found = load_key("m", model)
        assert found is not None
        assert found.get_secret_value() == text.strip()
    for broken in (b"a b", b"", b"\xff", b"x" * 9000):
        file.write_bytes(broken)
        with pytest.raises(ConfigError, match=r"models: m: .*key: must have 1 to"):
            load_key("m", model)
    file.unlink()
    with pytest.raises(ConfigError, match=r"No such file"):
        load_key("m", model)
    assert load_key("m", OperatorModel.model_validate(ENTRY)) is None


PRICE = st.decimals(0, 1000, places=4)


@given(st.integers(0, 10**9), st.integers(0, 10**9), PRICE, PRICE)
def test_a_cost_is_exact_and_rounded_up(
    received: int, sent: int, price: Decimal, other: Decimal
) -> None:
    found = cost(TokenUsage(received, sent, False), ModelPrices(input=price, output=other))
    exact = received * int(price * 10_000) + sent * int(other * 10_000)
    assert found == -(-exact // 10_000)


def test_a_cost_is_in_micro_dollars() -> None:
    prices = ModelPrices(input=Decimal("0.15"), output=Decimal("0.6"))
    assert cost(TokenUsage(1_000_000, 1_000_000, False), prices) == 750_000
    assert cost(TokenUsage(1, 0, False), prices) == 1
    assert cost(TokenUsage(0, 0, False), prices) == 0


def test_an_estimate_is_no_less_than_what_it_can_be() -> None:
    found = estimated(Prompt([ModelMessage("user", "aß"), ModelMessage("system", "")]), 7)
    assert (found.input_tokens, found.output_tokens, found.estimated) == (3 + 32, 7, True)
    assert estimated(Prompt([ModelMessage("user", "\udcff")]), 0).input_tokens == 17


@pytest.mark.parametrize(
    "usage", [(1, None), (-1, 1), (True, 1), ("1", 1), (10**9 + 1, 1), (1.5, 1)]
)
def test_a_usage_that_is_nonsense_is_none(usage: tuple[Any, Any]) -> None:
    class Told:
        prompt_tokens, completion_tokens = usage

    assert stated(Told) is None
    assert stated(None) is None

"""Where something new is put in a cluster, as options of the command line say it."""

import pytest
import typer

from paddock.cli.options import placed


def test_it_has_what_was_given_and_nothing_else() -> None:
    assert placed(None, None) is None
    assert placed([], "web") == {"near": "web"}
    labels = {"zone": "a", "disk": "fast"}
    assert placed(["zone=a", "disk=fast"], None) == {"labels": labels}
    assert placed(["zone=a", "disk=fast"], "web") == {"labels": labels, "near": "web"}


def test_a_label_without_a_value_is_refused() -> None:
    with pytest.raises(typer.BadParameter) as refused:
        placed(["zone"], None)
    assert refused.value.param_hint == "--node-label"

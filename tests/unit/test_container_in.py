"""Tests on real containers find processes by control groups, whose names depend on the host."""

import pytest

from tests.support.box import container_in

ID = "50ebdfe1213b" + "0" * 52


@pytest.mark.parametrize(
    "cgroups",
    [
        f"12:memory:/docker/{ID}\n11:pids:/docker/{ID}\n",
        f"0::/docker/{ID}\n",
        f"0::/system.slice/docker-{ID}.scope\n",
        f"0::/system.slice/docker-{ID}.scope/commands\n",
    ],
)
def test_a_container_by_either_driver(cgroups: str) -> None:
    assert container_in(cgroups) == ID


@pytest.mark.parametrize("cgroups", ["0::/init.scope\n", f"0::/x{ID}\n", "0::/\n", ""])
def test_no_container(cgroups: str) -> None:
    assert container_in(cgroups) is None

"""Services of operations, found by the types of their parameters."""

from typing import Any, get_type_hints

import pytest

from api.catalog import OPERATIONS
from api.http.auth import NOBODY
from api.shape.access import Access
from api.shape.context import Context, Shared
from api.shape.operation import Operation, operation
from api.shape.services import Services
from orchestrator.control_plane import ControlPlane
from orchestrator.rules.access.break_glass import BreakGlass
from orchestrator.rules.access.keys import KeyRing
from paddock.contract.requests import NoBody
from paddock.contract.system import Health


class Clock:
    """A service."""


class Store:
    """Another one."""


def stops_clock(context: Context, body: NoBody, clock: Clock) -> bool:
    """Whether it runs."""
    return isinstance(clock, Clock)


@operation(
    "POST",
    "/api/clocks/{name}",
    Access.OPEN,
    tag="Tools",
    summary="Wind a clock",
    answers="It is wound.",
    stops=stops_clock,
)
async def wind(context: Context, clock: Clock, store: Store, name: str, body: NoBody) -> Health:
    """It goes on."""
    assert isinstance(clock, Clock)
    assert isinstance(store, Store)
    assert name == "tower"
    return Health(status="ok")


WIND: Operation = vars(wind)["operation"]


def test_a_parameter_that_is_no_part_of_the_request_is_a_service() -> None:
    assert WIND.services == {"clock": Clock, "store": Store}
    assert WIND.stop_services == {"clock": Clock}
    assert (WIND.parameters, WIND.body) == (("name",), NoBody)


async def test_an_operation_gets_its_services() -> None:
    clock, store = Clock(), Store()
    nothing: Any = None
    services = Services([(Store, store), (Clock, clock)], [WIND])
    assert services.of_operation[WIND.id] == {"clock": clock, "store": store}
    assert services.of_stop[WIND.id] == {"clock": clock}
    shared = Shared(nothing, nothing, nothing, services, KeyRing({}), BreakGlass(required=False))
    context = Context(shared, NOBODY, nothing, "id", {}, lambda: True)
    async with context.performing(WIND, {"name": "tower", "body": NoBody()}) as answer:
        assert answer == Health(status="ok")


def test_a_missing_service_is_told_with_its_operation() -> None:
    with pytest.raises(TypeError, match="operation wind: store: there is no service Store"):
        Services([(Clock, Clock())], [WIND])
    with pytest.raises(TypeError, match="operation wind: clock: there is no service Clock"):
        Services([(Store, Store())], [WIND])


def test_two_services_of_one_type_are_refused() -> None:
    with pytest.raises(TypeError, match="two services are of type Clock"):
        Services([(Clock, Clock()), (Store, Store()), (Clock, Clock())], [])


def test_an_instance_offers_what_its_class_declares() -> None:
    class Instance:
        clock: Clock
        store: Store

    instance = Instance()
    instance.clock = Clock()
    with pytest.raises(TypeError, match="operation wind: store: there is no service Store"):
        Services.of(instance, [WIND])
    instance.store = Store()
    found = Services.of(instance, [WIND]).of_operation[WIND.id]
    assert found == {"clock": instance.clock, "store": instance.store}


def test_the_control_plane_has_all_that_operations_name() -> None:
    declared = get_type_hints(ControlPlane)
    services = Services([(kind, name) for name, kind in declared.items()], OPERATIONS)
    found = [services.of_operation[each.id] for each in OPERATIONS]
    assert {"sessions", "governed_commands"} <= {name for each in found for name in each.values()}

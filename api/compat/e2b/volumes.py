"""Volumes: created, listed, shown, removed. Their files are reached from sandboxes only."""

from typing import Any

from aiohttp import web

from api.compat.call import Call
from api.compat.e2b import views
from api.compat.e2b.bodies import VolumeBody
from api.operations.volumes import create_volume, list_volumes, remove_volume, show_volume
from api.shape.objects import validated
from orchestrator.ground.errors import ValidationError
from paddock.contract import volumes as contract
from paddock.contract.volumes import VolumeKeyQuery, VolumeListQuery

# E2B's volumes have no size; this API's have one.
_SIZE = 1024 * 1024 * 1024
_PAGE = "1000"


async def create(call: Call) -> web.Response:
    """A new volume, which is empty."""
    wanted = {"name": (await call.body(VolumeBody)).name, "size_bytes": _SIZE}
    made = await call.done(create_volume, body=validated(contract.VolumeBody, wanted))
    return views.answer(_with_token(made.model.name), 201)


async def list_all(call: Call) -> web.Response:
    """The caller's volumes."""
    asked: dict[str, Any] = {"limit": _PAGE}
    found: list[dict[str, str]] = []
    while True:
        page = await call.done(list_volumes, query=validated(VolumeListQuery, asked))
        found += [_view(each.name) for each in page.items]
        if page.next is None:
            return views.answer(found)
        asked["cursor"] = page.next


async def show(call: Call) -> web.Response:
    """A volume."""
    name = call.context.path["volume"]
    shown = await call.done(show_volume, name=name, query=VolumeKeyQuery())
    return views.answer(_with_token(shown.name))


async def remove(call: Call) -> web.Response:
    """Removes a volume that no sandbox has, with its files."""
    name = call.context.path["volume"]
    await call.done(remove_volume, name=name, query=VolumeKeyQuery())
    return views.nothing()


async def refuse_content(call: Call) -> web.Response:
    """Raises: ValidationError."""
    raise ValidationError(
        "a volume's files are not reached from outside: mount it in a sandbox with volumeMounts"
    )


def _view(name: str) -> dict[str, str]:
    return {"volumeID": name, "name": name}


def _with_token(name: str) -> dict[str, str]:
    """As the SDKs expect it. There is nothing that the token would be for."""
    return _view(name) | {"token": ""}

"""On which node E2B's clients build templates: all of a key's on one, as each may begin as another.

So a build replaces the earlier ones of its template, and those that begin alike share their steps.
"""

from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256

from aiohttp import web

from gateway.errors import RETRY_SECONDS
from gateway.faces.asking import Answer, ask_for_list
from gateway.members import Member
from gateway.open import Gateway
from gateway.places.making import asking_headers
from orchestrator.ground.errors import NodeUnavailableError

_LIST = "/compat/e2b/templates"


class Building:
    """Chooses a node for each build."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def node_of(self, request: web.Request, name: str | None) -> Member:
        """The node on which the caller's template is built.

        Raises: NodeUnavailableError if none is ready, or one may have the template and does not
        answer; RefusedError.
        """
        gateway = self._gateway
        members = list(gateway.members.all)
        found = await gateway.asking.pages(
            *(members, _LIST, lambda *_: {}, asking_headers(request)),
            *(_has_templates, 1, ask_for_list),
        )
        templates = {node: _built(answer) for node, answer in found.answers.items()}
        if found.missing and not any(name in own for own in templates.values()):
            away = found.missing[0]
            raise NodeUnavailableError(
                f"the node {away} does not answer, and may have the template: try again",
                node=away,
                retry_after=RETRY_SECONDS,
            )
        caller = await gateway.callers.principal_of(request)
        ready = [each.name for each in members if each.node.takes_sessions]
        chosen = builder(name, "" if caller is None else caller.account, templates, ready)
        if chosen is None:
            raise NodeUnavailableError("no node builds now: try again", retry_after=RETRY_SECONDS)
        return gateway.holders.reached(chosen)


def builder(
    name: str | None, owner: str, templates: Mapping[str, Collection[str]], ready: Iterable[str]
) -> str | None:
    """The node with the template, or most of the owner's, or the one that the owner's name chooses.

    All gateways choose the same. `templates` are the owner's by node. None: no node is ready.
    """

    def rank(node: str) -> tuple[bool, int, bytes]:
        own = templates.get(node, ())
        return name in own, len(own), sha256(f"{owner}\n{node}".encode()).digest()

    holders = [node for node, own in templates.items() if name in own]
    return max(holders or ready, key=rank, default=None)


def _has_templates(answer: Answer) -> bool:
    return all(isinstance(each, dict) for each in answer["items"])


def _built(answer: Answer) -> Collection[str]:
    """The names of those that a client has built."""
    return {str(each.get("templateID")) for each in answer["items"] if each.get("buildCount")}

"""Declarations of operations; the contract's bounds equal the domain's."""

import importlib
import pkgutil
from http import HTTPStatus
from typing import Any

import pytest
from pydantic import ValidationError

from api import mcp
from api import operations as handlers
from api.catalog import OPERATIONS
from api.shape.access import Access
from api.shape.answers import Accepted, EventStream
from api.shape.context import Context
from api.shape.operation import SESSION, Events, Operation, operation, operations_of
from orchestrator.rules.tools.schemas import input_schema
from paddock.contract import words
from paddock.contract.commands import Command, CommandResult, PendingCommand
from paddock.contract.requests import NoBody
from paddock.contract.sessions import EXAMPLE, Session
from sandbox_agent.decide import redaction


def test_a_declaration_is_read_from_its_function() -> None:
    @operation(
        "POST",
        SESSION + "/{terminal_id}",
        Access.WORK,
        tag="Commands",
        summary="Do it",
        answers={200: "done", 202: "it waits"},
        events=Events({}, "nothing"),
    )
    async def do_it(
        context: Context, terminal_id: str, body: NoBody
    ) -> CommandResult | EventStream | Accepted[Command | PendingCommand]:
        """It is done."""
        raise NotImplementedError

    declared: Operation = vars(do_it)["operation"]
    assert (declared.id, declared.description) == ("do_it", "It is done.")
    assert (declared.parameters, declared.body, declared.query) == (("terminal_id",), NoBody, None)
    done, waits = declared.replies[HTTPStatus.OK], declared.replies[HTTPStatus.ACCEPTED]
    assert (done.description, done.models, done.events is not None) == (
        "done",
        (CommandResult,),
        True,
    )
    assert (waits.description, waits.models, waits.events) == (
        "it waits",
        (Command, PendingCommand),
        None,
    )


def test_every_module_of_operations_is_listed() -> None:
    declared = [
        found.id
        for package in (handlers, mcp)
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
        for found in operations_of(importlib.import_module(module.name))
    ]
    assert sorted(declared) == sorted(operation.id for operation in OPERATIONS)


def test_an_answer_can_lack_nothing() -> None:
    members: dict[str, Any] = dict(EXAMPLE)
    for wrong in (
        {name: members[name] for name in members if name != "owner"},
        members | {"ownre": "ci"},
        members | {"incarnation": "1"},
    ):
        with pytest.raises(ValidationError):
            Session.model_validate(wrong)


def test_bounds_are_those_of_the_agent() -> None:
    assert words.SECRET_BYTES == (redaction.LEAST_BYTES, redaction.MOST_BYTES)
    assert input_schema()["properties"]["command"]["maxLength"] == words.MAX_LINE

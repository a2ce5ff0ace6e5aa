"""A control plane: whether it is ready, its models and images, and what its sessions use."""

from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.exits import Failure, Status
from paddock.cli.levels import complete_session
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import AsJson, example, finite
from paddock.cli.output import note, print_json, print_table, size
from paddock.cli.resources.budgets import show_budget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock.client import Paddock, Usages


def add_to(app: typer.Typer, sessions: typer.Typer) -> None:
    """Adds the commands; `sessions` are those of the group `sessions`."""
    app.command(epilog=example("paddock ready"))(ready)
    app.command(epilog=example("paddock models"))(models)
    app.command(epilog=example("paddock usage"))(usage)
    sessions.command(epilog=example("paddock sessions images"))(images)


@remote
async def ready(paddock: "Paddock", as_json: AsJson = False) -> None:
    """Show whether sessions can be created, and the checks behind that.

    The exit status is 1 if they can't. `paddock doctor` examines more, on the host itself.
    """
    found = await paddock.ready()
    if as_json:
        print_json(found.raw)
    else:
        rows = [
            (check.status, name, check.detail, check.remedy) for name, check in found.checks.items()
        ]
        columns = ("status", "check", "what was found", "what to do")
        print_table(columns, rows, nothing="nothing was checked")
    if found.status != "ready":
        raise typer.Exit(Status.FAILED)


@remote
@lists
async def models(paddock: "Paddock", listing: Listing = TABLE) -> None:
    """List the language models that runs may use, the default one first."""
    print_items(
        await paddock.models.list(),
        listing,
        ("model", ">$ per million in", ">$ per million out", ">tokens per answer"),
        lambda model: (
            model.name,
            str(model.prices.input),
            str(model.prices.output),
            model.max_tokens,
        ),
        nothing="no models: docs/runs.md says how an operator adds one",
    )


@remote
@lists
async def images(paddock: "Paddock", listing: Listing = TABLE) -> None:
    """List the images that sessions may request, the default one first.

    `paddock images` builds images on this machine.
    """
    print_items(
        await paddock.images.list(),
        listing,
        ("image", "default of", "for this key", "usable", "levels", "problem"),
        lambda image: (
            image.name,
            " ".join(image.default_levels) or ("all" if image.default else None),
            "yes" if image.allowed else "no",
            "yes" if image.available else "no",
            " ".join(image.levels),
            image.problem,
        ),
        nothing="no images",
    )


@remote
async def usage(
    paddock: "Paddock",
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="[SESSION]",
            help="Report for this session what your own calls of models used.",
            autocompletion=complete_session,
        ),
    ] = None,
    tokens: Annotated[int, typer.Option(min=0, metavar="N", help="Tokens that were used.")] = 0,
    cost: Annotated[
        float,
        typer.Option(min=0, callback=finite, metavar="DOLLARS", help="What they cost."),
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Show what live sessions and the host use, or report usage of models for a session.

    With SESSION, its budget is shown afterwards; the session ends if that is used up.
    """
    if session is not None:
        found = await (await paddock.sessions.get(session)).report_usage(tokens=tokens, cost=cost)
        show_budget(found, as_json)
        return
    if tokens or cost:
        raise Failure("--tokens and --cost go with SESSION", status=Status.USAGE)
    sampled = await paddock.usage()
    print_json(sampled.raw) if as_json else _show_usage(sampled)


def _show_usage(sampled: "Usages") -> None:
    """The latest sample of each session and of the host."""
    rows = [
        (
            each.id,
            _percent(each.cpu_percent),
            _bytes(each.memory_bytes),
            each.pids,
            None if each.disk is None else size(each.disk.used_bytes),
        )
        for each in sampled.items
    ]
    columns = ("session", ">cpu", ">memory", ">processes", ">disk")
    print_table(columns, rows, nothing="no sample of a live session yet")
    host = sampled.host
    if host is not None and host.cpu_percent:
        memory = f"{_bytes(host.memory_used)} of {size(host.memory_bytes)}"
        disk = f"{_bytes(host.disk_used)} of {size(host.disk_bytes)}"
        note(f"host: {_percent(host.cpu_percent)} of {host.cpus} cores, {memory}, disk {disk}")


def _percent(samples: "Sequence[float | None]") -> str | None:
    return None if not samples or samples[-1] is None else f"{samples[-1]:.0f}%"


def _bytes(samples: "Sequence[int | None]") -> str | None:
    return None if not samples or samples[-1] is None else size(samples[-1])

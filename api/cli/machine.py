"""Commands that act on this machine: `serve`, `doctor` and `openapi`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli import backups, cluster, gateway, images, keys
from paddock.cli.exits import Failure, Status
from paddock.cli.options import AsJson, example
from paddock.cli.output import note, print_json, print_table, working

if TYPE_CHECKING:
    from orchestrator.ground.check import Check


app = typer.Typer()
for _name, _module in (("keys", keys), ("images", images), ("cluster", cluster)):
    app.add_typer(_module.app, name=_name)
app.add_typer(backups.app)
app.add_typer(gateway.app)


@app.command(epilog=example("paddock serve"))
def serve() -> None:
    """Run the control plane until TERM or Ctrl-C; its sandboxes keep running.

    It is configured by environment variables that begin with `PADDOCK_`, and by the TOML file that
    `PADDOCK_CONFIG_FILE` names.
    """
    from api.server import run
    from orchestrator.settings.settings import load_settings

    run(load_settings())


@app.command(epilog=example("paddock doctor"))
def doctor(
    gateway: Annotated[
        bool, typer.Option("--gateway", help="Check a gateway of a cluster instead.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check whether this machine can run sandboxes, and report what to fix.

    On a node of a cluster, its certificate, the cluster's database, its lease and its address are
    checked, too. `--gateway` checks, with the settings of a gateway, its certificate, the database
    and the way to each node. The exit status is 1 if a check fails; a warning is not a failure.
    """
    from orchestrator.ground.check import healthy
    from paddock.contract.build import this_build

    checks = _gateway_checks() if gateway else _machine_checks()
    build = this_build()
    if as_json:
        shown = [check.public() for check in checks]
        print_json({"ok": healthy(checks), "build": build._asdict(), "checks": shown})
    else:
        note(f"paddock {build}")
        _show_checks(checks)
    if not healthy(checks):
        raise typer.Exit(Status.FAILED)


def _machine_checks() -> "list[Check]":
    import asyncio
    from functools import partial

    from images.inventory import current_inputs
    from orchestrator.operate.checks.doctor import run_checks
    from orchestrator.settings.settings import load_settings

    settings = load_settings()
    with working("checking"):
        inputs = partial(current_inputs, settings.image)
        return asyncio.run(run_checks(settings, image_inputs=inputs))


def _gateway_checks() -> "list[Check]":
    import asyncio

    from gateway.settings import load_gateway_settings
    from orchestrator.operate.checks.in_cluster.cluster import DatabaseOf, gateway_checks

    settings = load_gateway_settings()
    where = DatabaseOf(
        settings.cluster,
        settings.cluster_database.get_secret_value(),
        settings.cluster_database_password_file,
    )
    files = settings.gateway_cert, settings.gateway_key, settings.gateway_ca
    with working("checking"):
        return asyncio.run(gateway_checks(where, *files))


def _show_checks(checks: "list[Check]") -> None:
    rows = [(check.status, check.name, check.detail) for check in checks]
    print_table(("status", "check", "what was found"), rows, nothing="nothing was checked")
    wrong = [check for check in checks if check.status != "ok" and check.remedy]
    if wrong:
        mend = [(check.status, check.name, check.remedy) for check in wrong]
        print_table(("status", "check", "what to do"), mend, nothing="", title="To mend")


@app.command(epilog=example("paddock openapi -o openapi.json"))
def openapi(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to a file.")
    ] = None,
) -> None:
    """Print the OpenAPI document of the HTTP API."""
    import json

    from api.openapi import document

    text = json.dumps(document(), indent=2, ensure_ascii=False) + "\n"
    if output is None:
        print(text, end="")
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(f"{output}: {error.strerror}") from None
    note(f"wrote {output}")

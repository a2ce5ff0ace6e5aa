"""Backs up and restores the state directory of this machine's control plane."""

from pathlib import Path
from typing import Annotated

import typer

from paddock.cli.options import AsJson, example
from paddock.cli.output import note, print_json, size, working

app = typer.Typer()

_File = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]


@app.command(epilog=example("paddock backup paddock.tar"))
def backup(
    file: _File,
    keys: Annotated[
        bool, typer.Option("--keys/--no-keys", help="Include the private keys; by default yes.")
    ] = True,
    workspaces: Annotated[
        bool,
        typer.Option(
            "--workspaces", help="Include the workspaces that nothing writes to meanwhile."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a backup of the state directory to a new file; the control plane may be running.

    It has the sessions and the whole audit record with its archives and evidence, the keys file and
    the private keys, all of one moment, and is verified. Keep it like the state directory itself.
    It has the workspaces only with --workspaces, and never the settings.
    """
    from orchestrator.operate.backups.backup import take
    from orchestrator.settings.settings import load_settings

    with working("backup") as report:
        taken = take(load_settings(), file, report, private=keys, workspaces=workspaces)
    if as_json:
        print_json(taken._asdict())
        return
    print(f"{file}: {size(taken.bytes)}, {taken.events} events")
    if workspaces:
        note(f"{taken.workspaces} workspaces; {len(taken.left_out)} are left out")
        for name, why in taken.left_out.items():
            note(f"left out: {name}: {why}")
    note(f"{taken.chains} chains verified; keep the file secret: it has keys, records and output")


@app.command(epilog=example("paddock restore paddock.tar"))
def restore(
    file: _File,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the state that is there, and keep it aside.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into the state directory, while no control plane uses it.

    The next start ends the sessions that were live when it was taken, as `crash`.
    """
    import asyncio

    from orchestrator.operate.backups.restoration import restore as run
    from orchestrator.settings.settings import load_settings

    settings = load_settings()
    with working("restoring") as report:
        restored = asyncio.run(run(settings, file, report, replace=replace))
    if as_json:
        print_json({**restored._asdict(), "kept": restored.kept and str(restored.kept)})
        return
    print(f"{settings.state_dir} is as it was at {restored.taken_at}")
    note(f"{restored.chains} chains verified; {restored.sessions_ended} sessions will end")
    note(f"{restored.workspaces} workspaces restored")
    if restored.kept is not None:
        note(f"what was there before is in {restored.kept}")

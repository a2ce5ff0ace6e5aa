"""`paddock cluster import`: takes into the cluster what this machine had alone."""

from typing import Annotated

import typer

from api.cli.cluster_database import cluster_access, run_now, with_database, without_driver
from paddock.cli.options import AsJson
from paddock.cli.output import note, print_fields, print_json, working


def import_(
    owner: Annotated[
        list[str] | None,
        typer.Option(
            "--owner",
            metavar="KEY",
            help="What this key has here is that of the cluster's key with its name, although that"
            " is another key. May be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Take into the cluster what this machine had before it became a node.

    That is its keys with their limits, and the secrets, hooks and memory of these keys. What the
    cluster has already stays as it is there, and all stays here, too; so it can be run again. Run
    it on the machine, with its settings; the control plane may be running. Sessions, workspaces and
    volumes stay on the machine, and live sessions get their places when it joins.
    """
    try:
        from orchestrator.operate.joining.importing import Imported, Importer
    except ModuleNotFoundError as error:
        raise without_driver(error) from None
    from orchestrator.cluster.postgres.pool import ClusterDatabase
    from orchestrator.operate.joining.belongings import of_machine
    from orchestrator.record.secrets.sealer import own_sealer, shared_sealer
    from orchestrator.settings.settings import load_settings

    access, settings = cluster_access(), load_settings()
    file = settings.cluster_secrets_key_file
    shared = None if file is None else shared_sealer(file, access.cluster)
    has = of_machine(settings)

    with working("importing") as report:

        async def work(database: ClusterDatabase) -> Imported:
            importer = Importer(database, own_sealer(settings.state_dir), shared)
            return await importer.run(has, owner or (), report)

        done = run_now(with_database(work))
    numbers = {name: getattr(done, name) for name in ("keys", "secrets", "hooks", "memory")}
    left = [
        {"owner": name, "reason": reason, "number": number}
        for (name, reason), number in sorted(done.left.items())
    ]
    if as_json:
        print_json({**numbers, "left": left})
        return
    print_fields((f"new {name}", number) for name, number in numbers.items())
    for each in left:
        note(f"left here: {each['number']} of {each['owner']}: {each['reason']}")

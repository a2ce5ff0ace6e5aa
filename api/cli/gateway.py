"""`paddock gateway`: the gateway of a cluster, in this process."""

import typer

from paddock.cli.exits import Failure, Status
from paddock.cli.options import example

app = typer.Typer()


@app.command(epilog=example("paddock gateway"))
def gateway() -> None:
    """Run a gateway of a cluster until TERM or Ctrl-C; it keeps nothing on disk.

    It passes requests on to the nodes of their sessions, and puts new sessions on nodes. It runs as
    user 65532, without any capability: started as root, it becomes that user.

    It is configured by environment variables: PADDOCK_CLUSTER and PADDOCK_CLUSTER_DATABASE, as the
    nodes have them; PADDOCK_GATEWAY_CERT, _KEY and _CA, the certificate with the name `gateway` and
    the authority of the nodes; PADDOCK_GATEWAY_HOST (127.0.0.1) and _PORT (8700), where it listens;
    PADDOCK_GATEWAY_TLS_CERT and _TLS_KEY for https; PADDOCK_GATEWAY_PREVIEW_PORT and
    _PREVIEW_DOMAIN for ports of sessions; PADDOCK_GATEWAY_DRAIN_SECONDS (30), how long what is open
    may take at the end.
    """
    import asyncio

    from api.log.logs import logging_to_stdout
    from gateway.server import serve
    from gateway.settings import load_gateway_settings
    from orchestrator.ground.config_error import ConfigError

    settings = load_gateway_settings()
    try:
        with logging_to_stdout(settings) as say:
            asyncio.run(serve(settings, say))
    except ConfigError as error:
        # What explains errors would be loaded now, when root's Python may be out of reach.
        raise Failure(str(error), status=Status.USAGE) from None

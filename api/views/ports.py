"""Open ports as the API shows them."""

from api.shape.objects import members
from orchestrator.state.open_port import OpenPort
from orchestrator.state.session import Session
from paddock.contract.ports import OpenedPort, Port


def port(preview_url: str | None, session: Session, shown: OpenPort) -> Port:
    """The port; `preview_url` is where ports are served."""
    url = None if preview_url is None else f"{preview_url}/s/{session.id}/{shown.port}/"
    return Port.model_validate(members(Port, shown, url=url))


def opened_port(preview_url: str, session: Session, shown: OpenPort, token: str) -> OpenedPort:
    """The port with its link, which `token` signs."""
    opened = port(preview_url, session, shown).model_dump()
    return OpenedPort.model_validate({**opened, "link": f"{opened['url']}~{token}/"})

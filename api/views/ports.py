"""Open ports as the API shows them."""

from api.shape.objects import members
from orchestrator.sandbox.ports.host_names import host_label
from orchestrator.settings.preview_address import PreviewOrigin
from orchestrator.state.open_port import OpenPort
from orchestrator.state.session import Session
from paddock.contract.ports import OpenedPort, Port


def port(previews: PreviewOrigin, session: Session, shown: OpenPort) -> Port:
    """The port with its addresses."""
    url = None if previews.url is None else f"{previews.url}/s/{session.id}/{shown.port}/"
    label = host_label(shown.port, session.id, session.incarnation)
    named = None if label is None else previews.named(label)
    host_url = None if named is None else f"{named}/"
    return Port.model_validate(members(Port, shown, url=url, host_url=host_url))


def opened_port(
    previews: PreviewOrigin, session: Session, shown: OpenPort, token: str
) -> OpenedPort:
    """The port with its links, which `token` signs; its addresses are known."""
    opened = port(previews, session, shown).model_dump()
    host_link = None if opened["host_url"] is None else f"{opened['host_url']}~{token}/"
    return OpenedPort.model_validate(
        {**opened, "link": f"{opened['url']}~{token}/", "host_link": host_link}
    )

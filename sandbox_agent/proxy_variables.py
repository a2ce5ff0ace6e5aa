"""The variables by which programs find the proxy of the way out."""

from sandbox_agent.protocol import EGRESS_PORT

_PROXY = f"http://127.0.0.1:{EGRESS_PORT}"
_LOCAL = "localhost,127.0.0.1,::1"


def proxy_variables(egress: bool) -> dict[str, str]:
    """In both cases: programs differ in which one they read. Empty without a way out."""
    if not egress:
        return {}
    values = {"http_proxy": _PROXY, "https_proxy": _PROXY, "no_proxy": _LOCAL}
    return {**values, **{name.upper(): value for name, value in values.items()}}

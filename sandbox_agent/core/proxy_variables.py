"""The variables by which programs find the proxy of the way out, and trust it."""

import os

from sandbox_agent.decide.protocol import CA_BUNDLE_NAME, CA_DIR, CA_NAME, EGRESS_PORT, HOST_NAME

_PROXY = f"http://127.0.0.1:{EGRESS_PORT}"
# The addresses of the sandbox itself. Some programs do not understand ranges, so 127.0.0.1 is
# listed, too.
_LOCAL = f"localhost,127.0.0.1,127.0.0.0/8,0.0.0.0,::1,{HOST_NAME}"
# Without this variable, Node's clients ignore the others.
_NODE = {"NODE_USE_ENV_PROXY": "1"}
# The variables that name the file with the roots that a program trusts.
_BUNDLE = (
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
)
# Node trusts the certificates of this file in addition to its own roots.
_NODE_ROOTS = "NODE_EXTRA_CA_CERTS"


def proxy_variables(egress: bool, directory: str = CA_DIR) -> dict[str, str]:
    """The variables, those of the proxy in lower and upper case; empty without a way out.

    Some programs read the lower-case names only, others the upper-case ones. `directory` has the
    certificates, if TLS is inspected.
    """
    if not egress:
        return {}
    values = {"http_proxy": _PROXY, "https_proxy": _PROXY, "no_proxy": _LOCAL}
    values |= {name.upper(): value for name, value in values.items()}
    values |= _NODE
    bundle = os.path.join(directory, CA_BUNDLE_NAME)
    if os.path.exists(bundle):
        values |= dict.fromkeys(_BUNDLE, bundle)
        values[_NODE_ROOTS] = os.path.join(directory, CA_NAME)
    return values

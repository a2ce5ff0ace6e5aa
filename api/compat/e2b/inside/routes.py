"""The paths that E2B's SDKs use inside a sandbox."""

from api.compat.protocol import Route

INSIDE_ROUTES: tuple[Route, ...] = ()

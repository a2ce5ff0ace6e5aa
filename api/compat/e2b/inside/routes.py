"""The paths that E2B's SDKs use inside a sandbox."""

from api.compat.e2b.inside.files import FILE_ROUTES, SIGNED_ROUTES
from api.compat.e2b.inside.filesystem import FILESYSTEM_ROUTES
from api.compat.e2b.inside.interpreter import INTERPRETER_ROUTES
from api.compat.e2b.inside.process import PROCESS_ROUTES
from api.compat.e2b.inside.state import STATE_ROUTES
from api.compat.protocol import Route

ROOT_ROUTES: tuple[Route, ...] = SIGNED_ROUTES
INSIDE_ROUTES: tuple[Route, ...] = (
    *PROCESS_ROUTES,
    *FILESYSTEM_ROUTES,
    *FILE_ROUTES,
    *INTERPRETER_ROUTES,
    *STATE_ROUTES,
)

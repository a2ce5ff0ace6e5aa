"""Names of E2B's interface that a node and a gateway read alike."""

# The header in which E2B's clients name their sandbox, and what older ones append to its id.
SANDBOX_HEADER = "E2b-Sandbox-Id"
CLIENT = "paddock"
# What the SDKs ask for if nobody names anything. Paddock's default level and image serve them.
DEFAULT_TEMPLATES = frozenset({"base", "code-interpreter-v1", "code-interpreter-beta"})
# The label of a session that keeps what its sandbox was made from.
TEMPLATE_LABEL = "e2b.template"
# The member of a sandbox's metadata that names its permission level.
LEVEL = "paddock.level"
_VERSIONS = (":default", ":latest")


def plain_id(sandbox_id: str) -> str:
    """A sandbox's id as its session has it, without what SDKs before 2.0 append."""
    return sandbox_id.removesuffix(f"-{CLIENT}")


def without_version(name: str) -> str:
    """The name of a template or a snapshot. E2B's have versions; here a name has one."""
    for version in _VERSIONS:
        name = name.removesuffix(version)
    return name

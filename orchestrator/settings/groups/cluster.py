"""Settings of a node of a cluster: all of them, or none."""

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    SecretStr,
    StringConstraints,
    ValidationInfo,
    field_validator,
)

from orchestrator.settings.value_types import AbsolutePath, Address, Origin, OrJson

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")
MOST_LABELS = 32
_Label = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$")]
_Labels = Annotated[dict[_Label, _Label], Field(max_length=MOST_LABELS)]
_SCHEMES = ("postgresql", "postgres")


def checked_name(value: str) -> str:
    """Returns the name of a cluster or a node. Raises: ValueError."""
    if _NAME.fullmatch(value) is None:
        raise ValueError(
            "must have 1 to 63 small letters, digits, dots and hyphens, and begin and end with a "
            "letter or digit"
        )
    return value


def checked_database(value: SecretStr) -> SecretStr:
    """Returns it. Raises: ValueError, without the value, which may have a password."""
    try:
        parts = urlsplit(value.get_secret_value())
        known = parts.scheme in _SCHEMES and len(parts.path) > 1
        _ = parts.port
    except ValueError:
        known = False
    if not known:
        raise ValueError("must look like postgresql://user@host:5432/database")
    return value


def _over_tls(value: str) -> str:
    if not value.startswith("https://"):
        raise ValueError("must begin with https://, because gateways reach nodes over TLS only")
    return value


def _file(value: AbsolutePath) -> AbsolutePath:
    try:
        found = value.is_file()
    except OSError as error:  # such as a name that no file can have
        raise ValueError(f"{str(value)[:200]!r}: {error.strerror}") from None
    if not found:
        raise ValueError(f"{str(value)!r}: no such file")
    return value


_Name = Annotated[str, AfterValidator(checked_name)]
_Database = Annotated[SecretStr, AfterValidator(checked_database)]
_TlsOrigin = Annotated[Origin, AfterValidator(_over_tls)]
_File = Annotated[AbsolutePath, AfterValidator(_file)]

# What a node needs besides the cluster's name, and how it is had.
_NEEDED = {
    "cluster_database": "the database that all nodes of the cluster share",
    "node": "a name that no other node of the cluster has",
    "node_url": "where gateways reach this node, such as https://node-1.internal:8790",
    "node_listen": "the address for gateways, such as 0.0.0.0:8790",
    "node_cert": "this node's certificate",
    "node_key": "the key of this node's certificate",
    "node_ca": "the certificate of the authority that has signed those of the gateways",
}
_OPTIONAL = ("cluster_database_password_file", "cluster_secrets_key_file", "node_labels")


class ClusterSettings(BaseModel):
    """Settings of a node of a cluster: all of them, or none."""

    cluster: _Name | None = Field(
        default=None,
        description="The name of the cluster to which this node belongs; all nodes and gateways "
        "have the same. Unset: there is no cluster, and no other setting of one may be set.",
    )
    cluster_database: _Database | None = Field(
        default=None,
        description="The PostgreSQL database that the cluster shares, as "
        "`postgresql://user@host:5432/database`.",
    )
    cluster_database_password_file: _File | None = Field(
        default=None,
        description="The file with the password of the database's user, if it is not in the URL.",
    )
    cluster_secrets_key_file: _File | None = Field(
        default=None,
        description="The file with the key that seals the secrets and hooks of the cluster's keys, "
        "the same on all nodes: at least 32 random characters. Without it, a node can't have "
        "them.",
    )
    cluster_keys_seconds: Annotated[int, Field(ge=0, le=604800)] = Field(
        default=900,
        description="For how long the keys of the cluster stay valid on this node while the "
        "database does not answer. Then only handles of sessions work, and this machine's admin "
        "key.",
    )
    cluster_retention: Annotated[int, Field(ge=86_400, le=3_153_600_000)] = Field(
        default=31_536_000,
        description="How long after its end a session is in the cluster's lists, and its copied "
        "record in the database. Its record on its node is not affected.",
    )
    cluster_copy_bytes: Annotated[int, Field(ge=1_048_576, le=1_073_741_824)] = Field(
        default=67_108_864,
        description="The largest copy of a session that the cluster keeps in its database for "
        "`recovery: snapshot`. A larger session is not copied, and its record says so.",
    )
    cluster_copy_seconds: Annotated[int, Field(ge=1, le=86_400)] = Field(
        default=60,
        description="How long a session with `recovery: snapshot` must have been idle before it "
        "is copied to the cluster.",
    )
    node: _Name | None = Field(
        default=None, description="The name of this node, which no other node of the cluster has."
    )
    node_url: _TlsOrigin | None = Field(
        default=None,
        description="The URL at which gateways reach this node, such as "
        "`https://node-1.internal:8790`.",
    )
    node_listen: Address | None = Field(
        default=None,
        description="The address on which this node listens for gateways, as `host:port`. It "
        "answers only those with a certificate of the name `gateway`.",
    )
    node_labels: Annotated[_Labels, OrJson] = Field(
        default={},
        description="Labels of this node, by which sessions may choose it, as JSON.",
    )
    node_cert: _File | None = Field(
        default=None, description="The certificate of this node, in PEM."
    )
    node_key: _File | None = Field(
        default=None, description="The key of that certificate, in PEM, readable by its owner only."
    )
    node_ca: _File | None = Field(
        default=None,
        description="The authority whose certificates gateways have, in PEM.",
    )

    @field_validator(*_NEEDED)
    @classmethod
    def _all_of_a_node(cls, value: Any, info: ValidationInfo) -> Any:
        _only_in_cluster(value, info)
        if value is None and info.data.get("cluster"):
            needed = _NEEDED[info.field_name or ""]
            raise ValueError(f"must be set, because PADDOCK_CLUSTER is: {needed}")
        return value

    @field_validator(*_OPTIONAL)
    @classmethod
    def _none_alone(cls, value: Any, info: ValidationInfo) -> Any:
        _only_in_cluster(value, info)
        return value

    @field_validator("cluster_database_password_file")
    @classmethod
    def _one_password(cls, value: Any, info: ValidationInfo) -> Any:
        database: SecretStr | None = info.data.get("cluster_database")
        url = "" if database is None else database.get_secret_value()
        if value is not None and urlsplit(url).password is not None:
            raise ValueError("PADDOCK_CLUSTER_DATABASE has a password already: remove one")
        return value


def _only_in_cluster(value: Any, info: ValidationInfo) -> None:
    """Raises: ValueError for what is set without a cluster."""
    if value and info.data.get("cluster", "") is None:
        raise ValueError("is for nodes of a cluster: set PADDOCK_CLUSTER too, or remove it")

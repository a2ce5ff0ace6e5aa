"""Settings of where the record is sent."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field
from pydantic_settings import NoDecode

from orchestrator.settings.operator_exports import OperatorExport, checked_exports
from orchestrator.settings.value_types import OrJson


class ExportSettings(BaseModel):
    """Settings of where the record is sent."""

    exports: Annotated[
        dict[str, OperatorExport], NoDecode, OrJson, AfterValidator(checked_exports)
    ] = Field(
        default={},
        description="Exports of the record, by name, each to a file, a collector of syslog over "
        'TLS, or a URL: `{"file" or "syslog" or "url", "format", "since", "ca_file", "cert_file", '
        '"key_file", "token_file", "body", "gzip"}`.',
    )
    export_hold_bytes: int = Field(
        default=1024**3,
        ge=0,
        description="How many bytes of ended sessions the ledger keeps beyond "
        "`PADDOCK_AUDIT_RETENTION` for exports that have not sent them yet. Above that, the "
        "oldest are archived all the same, which is on record with the number of their events "
        "that are missing in an export.",
    )

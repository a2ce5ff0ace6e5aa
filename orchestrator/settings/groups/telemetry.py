"""Settings of OpenTelemetry."""

from pydantic import BaseModel, Field


class TelemetrySettings(BaseModel):
    """Settings of OpenTelemetry."""

    otel: bool = Field(
        default=False,
        description="Whether traces and metrics are sent by OTLP over HTTP, to the collector that "
        "`OTEL_EXPORTER_OTLP_ENDPOINT` and OpenTelemetry's other variables name.",
    )
    otel_sample: float = Field(
        default=1.0,
        ge=0,
        le=1,
        allow_inf_nan=False,
        description="Which part of the traces is sent, also of those that callers have begun.",
    )
    otel_interval: float = Field(
        default=60,
        ge=1,
        le=3600,
        allow_inf_nan=False,
        description="How often metrics are sent by OTLP.",
    )

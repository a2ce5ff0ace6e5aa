/** The trace that a program is in, passed on with each request. */

interface SpanPlace {
  readonly traceId: string;
  readonly spanId: string;
  readonly traceFlags: number;
}

interface OpenTelemetry {
  readonly context?: {
    active(): { getValue(key: symbol): { spanContext(): SpanPlace } | undefined };
  };
}

// Where OpenTelemetry's API keeps what a program has registered, and its key of the present span.
const API = Symbol.for("opentelemetry.js.api.1");
const SPAN = Symbol.for("OpenTelemetry Context Key SPAN");

/**
 * The W3C's header of the present span, in programs that use OpenTelemetry; else nothing.
 *
 * Nothing is imported: a program that has a span has loaded it.
 */
export function traceHeaders(): Record<string, string> {
  const api = (globalThis as { [API]?: OpenTelemetry })[API];
  const place = api?.context?.active().getValue(SPAN)?.spanContext();
  if (place === undefined || !known(place.traceId, 32) || !known(place.spanId, 16)) return {};
  const flags = place.traceFlags & 1 ? "01" : "00";
  return { traceparent: `00-${place.traceId}-${place.spanId}-${flags}` };
}

/** Whether it is an id of so many digits; zeros are none. */
function known(id: string, digits: number): boolean {
  return /^[0-9a-f]+$/.test(id) && id.length === digits && !/^0+$/.test(id);
}

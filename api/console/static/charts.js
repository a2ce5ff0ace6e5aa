// Small charts: a line of the last minutes, and a bar.

import { html } from "./vendor/preact.js";

const WIDTH = 100;
const HEIGHT = 24;
const SAMPLES = 60;

/** The line of the values; null is a gap, and `most` is the top of the picture. */
export function linePath(values, most) {
  const from = SAMPLES - values.length;
  let open = false;
  return values.map((value, at) => {
    if (value == null) { open = false; return ""; }
    const x = ((from + at) / (SAMPLES - 1)) * WIDTH;
    const y = HEIGHT - 1 - Math.min(1, value / most) * (HEIGHT - 2);
    const step = `${open ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`;
    open = true;
    return step;
  }).join("");
}

/** A line of the last ten minutes. The top of the picture is `least` or more. */
export function Sparkline({ values, least, label }) {
  const most = Math.max(least, ...values.filter((value) => value != null));
  return html`<svg class="spark" viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label=${label}>
    <path d=${linePath(values, most)} vector-effect="non-scaling-stroke" /></svg>`;
}

/** A used amount as text, and as a bar if there is a limit. */
export function Meter({ label, used, limit, children }) {
  const share = limit ? Math.min(1, used / limit) : 0;
  const kind = share > 0.9 ? "bad" : share > 0.7 ? "warn" : "";
  return html`<span class="meter"><span class="num">${children}</span>
    ${limit ? html`<progress class=${kind} max="1" value=${share} aria-label=${label}></progress>` : ""}</span>`;
}

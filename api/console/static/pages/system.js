// Whether sessions can be created, and the images that they may have.

import { html } from "../vendor/preact.js";
import { Problem, get } from "../api.js";
import { Badge, Failure, Loading, Raw, Table, useLoaded } from "../parts.js";

const KIND = { ok: "good", warning: "warn", failure: "bad" };
const CHECKS = [
  { name: "Check", key: (check) => check.name, show: (check) => check.name },
  { name: "", key: (check) => check.status, show: (check) => html`<${Badge} kind=${KIND[check.status]}>${check.status}<//>` },
  { name: "Detail", key: (check) => check.detail, show: (check) => html`${check.detail}${check.remedy && html`<br /><em>${check.remedy}</em>`}` },
];
const IMAGES = [
  { name: "Image", key: (image) => image.name, show: (image) => html`<${Raw} text=${image.name} />${image.default ? " (default)" : ""}` },
  { name: "State", key: (image) => image.problem ?? "", show: (image) => (image.available ? html`<${Badge} kind="good">available<//>` : html`<${Raw} text=${image.problem} />`) },
  { name: "Levels", key: (image) => image.levels.join(), show: (image) => image.levels.join(", ") },
];

/** The checks, which are also in the answer that says that sessions can't be created. */
async function readiness() {
  const response = await fetch("/readyz");
  if (!response.ok && response.status !== 503) throw new Problem(response.status, {});
  return response.json();
}

export function System() {
  const [ready, error, reload] = useLoaded(readiness, []);
  const [images, failed] = useLoaded(() => get("/api/images"), []);
  const failure = error && html`<${Failure} error=${error} again=${reload} />`;
  if (!ready) return failure ?? html`<${Loading} what="checks" />`;
  return html`<h1>System</h1>${failure}<p class="actions"><${Badge} kind=${ready.status === "ready" ? "good" : "bad"}>${ready.status}<//>
      <button onClick=${reload}>Check again</button> <a href="/api/docs">The API's description</a></p>
    <${Table} label="checks" columns=${CHECKS} filter=${false} of=${(check) => check.name}
      rows=${Object.entries(ready.checks).map(([name, check]) => ({ name, ...check }))} />
    <h2>Images</h2>${failed ? html`<${Failure} error=${failed} />` : images
      ? html`<${Table} label="images" columns=${IMAGES} rows=${images.items} of=${(image) => image.name} />` : html`<${Loading} what="images" />`}`;
}

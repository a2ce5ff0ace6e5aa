// The frame of all pages, and which page an address shows.

import { html, render, useEffect, useState } from "./vendor/preact.js";
import { credential, keepCredential } from "./api.js";
import { Live, useLive } from "./live.js";
import { Later, useStrip } from "./parts.js";
import { SignIn } from "./pages/sign_in.js";
import { returned } from "./pages/sign_in_elsewhere.js";
import { Overview } from "./pages/overview.js";
import { Session } from "./pages/session.js";
import { Approvals, useNotifications } from "./pages/approvals.js";
import { Audit } from "./pages/audit.js";
import { Keys } from "./pages/keys.js";
import { Policies } from "./pages/policies.js";
import { System } from "./pages/system.js";

const nodes = async () => (await import("./pages/nodes.js")).Nodes;
const volumes = async () => (await import("./pages/volumes.js")).Volumes;

const PAGES = [
  ["sessions", "Sessions"], ["approvals", "Approvals"], ["audit", "Audit"],
  ["policies", "Policies"], ["volumes", "Volumes"], ["keys", "Keys"], ["system", "System"],
];

/** The parts of the address behind `#/`, and its query. */
function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { parts: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query) };
}

function useAddress() {
  const [now, setNow] = useState(address());
  useEffect(() => {
    const moved = () => {
      setNow(address());
      document.querySelector("main")?.focus({ preventScroll: true });
      scrollTo(0, 0);
    };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return now;
}

function Page({ live, parts, query }) {
  const [page = "sessions", id, tab] = parts;
  // A page changes its own conditions in the address; any other change of the address is another page.
  const key = query.toString();
  if (page === "sessions" && id) return html`<${Session} key=${id} live=${live} id=${id} tab=${tab} query=${query} />`;
  if (page === "sessions") return html`<${Overview} key=${key} live=${live} query=${query} />`;
  if (page === "approvals") return html`<${Approvals} live=${live} query=${query} />`;
  if (page === "audit") return html`<${Audit} key=${key} query=${query} />`;
  if (page === "policies") return html`<${Policies} key=${key} query=${query} />`;
  if (page === "volumes") return html`<${Later} load=${volumes} />`;
  if (page === "keys") return html`<${Keys} />`;
  if (page === "nodes") return html`<${Later} load=${nodes} />`;
  if (page === "system") return html`<${System} live=${live} />`;
  return html`<p class="state">There is no such page. <a href="#/sessions">See the sessions</a>.</p>`;
}

const STATES = {
  loading: ["connecting", "The page is connecting to the control plane."],
  live: ["live", "What you see is what is now."],
  reconnecting: ["reconnecting", "The control plane does not answer. What you see may be old; the page tries again."],
  over: ["disconnected", "The credential is not valid any more, or the control plane refused the page. Sign in again."],
};

function Connection({ live }) {
  useLive(live);
  useNotifications(live);
  const [state, means] = STATES[live.state];
  return html`<span class="connection ${live.state}" role="status" title=${means}>${state}</span>`;
}

/** A warning on a page that is not live. */
function Stale({ live }) {
  useLive(live);
  if (!["reconnecting", "over"].includes(live.state)) return null;
  return html`<p class="stale ${live.state}">${STATES[live.state][1]}</p>`;
}

/** Moves the focus to the page. An address in `href` would do so, too, but replace the page's own address. */
const skip = (event) => { event.preventDefault(); document.querySelector("main").focus(); };
const Brand = ({ href }) => html`<a class="skip" href="#" onClick=${skip}>Skip to the page</a>
  <a class="brand" href=${href}><img src="/console/icon.svg" alt="" width="22" height="22" /> Paddock</a>`;

function Navigation({ live, page }) {
  useLive(live);
  const strip = useStrip(page);
  const pages = live.nodes.length || page === "nodes" ? [...PAGES, ["nodes", "Nodes"]] : PAGES;
  return html`<nav ref=${strip} aria-label="Pages">${pages.map(([name, title]) => html`
    <a href="#/${name}" aria-current=${page === name ? "page" : undefined}>${title}${
      name === "approvals" && live.approvals ? html` <span class="count">${live.approvals}</span>` : ""}</a>`)}</nav>`;
}

function Frame({ given, onLeave }) {
  const { parts, query } = useAddress();
  const [live] = useState(() => new Live());
  const own = given.session;
  useEffect(() => {
    if (!own) live.start();
    return () => live.close();
  }, []);
  useEffect(() => { document.title = ["Paddock", ...parts].reverse().join(" · "); }, [parts.join("/")]);
  const leave = html`<button class="plain" onClick=${onLeave}>Sign out</button>`;
  if (own) {
    return html`<header><${Brand} href="#/sessions/${encodeURIComponent(own)}" /><span></span>${leave}</header>
      <main tabindex="-1"><${Session} id=${own} tab=${parts[2]} query=${query} /></main>`;
  }
  return html`<header><${Brand} href="#/sessions" />
      <${Navigation} live=${live} page=${parts[0] ?? "sessions"} /><${Connection} live=${live} />${leave}</header>
    <${Stale} live=${live} /><main tabindex="-1"><${Page} live=${live} parts=${parts} query=${query} /></main>`;
}

function App({ problem }) {
  const [given, setGiven] = useState(credential());
  const keep = (value) => { keepCredential(value); setGiven(value); };
  if (!given) return html`<${SignIn} onSignIn=${keep} problem=${problem} />`;
  return html`<${Frame} given=${given} onLeave=${() => { location.hash = ""; keep(null); }} />`;
}

/** Whoever comes back from an issuer of tokens is signed in before the first page. */
const problem = await returned().then((found) => found && keepCredential(found), (failed) => failed);
render(html`<${App} problem=${problem instanceof Error ? problem : null} />`, document.body);

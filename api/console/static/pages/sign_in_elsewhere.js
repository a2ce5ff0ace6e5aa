// Signs in at an issuer of tokens, by its code flow with PKCE, and keeps the token fresh.
//
// What the flow needs is made here and kept in this tab for ten minutes; the address has only the issuer's code, which
// is worth nothing without it.

import { html, useEffect, useState } from "../vendor/preact.js";

const PLACE = "paddock.sign-in";
const MOST_MS = 600_000;
const BYTES = 32;

const encoded = (bytes) => btoa(String.fromCharCode(...new Uint8Array(bytes)))
  .replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const random = () => encoded(crypto.getRandomValues(new Uint8Array(BYTES)));

/** Leaves for the issuer. */
async function leave(offer) {
  const flow = { issuer: offer.name, iss: offer.issuer, state: random(), nonce: random(), verifier: random(), at: Date.now() };
  const challenge = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(flow.verifier));
  sessionStorage.setItem(PLACE, JSON.stringify(flow));
  const { client_id, redirect_uri, scope, resource } = offer;
  const asked = {
    response_type: "code", client_id, redirect_uri, scope, state: flow.state, nonce: flow.nonce,
    code_challenge: encoded(challenge), code_challenge_method: "S256", ...(resource ? { resource } : {}),
  };
  const url = new URL(offer.authorization_endpoint);
  for (const [name, value] of Object.entries(asked)) url.searchParams.set(name, value);
  location.assign(url);
}

/** The credential that a code of the issuer leads to; null: the address has none. Throws an Error. */
export async function returned() {
  const answer = new URLSearchParams(location.search);
  if (!answer.has("state")) return null;
  history.replaceState(null, "", "/"); // a code is used once
  const flow = JSON.parse(sessionStorage.getItem(PLACE) ?? "null");
  sessionStorage.removeItem(PLACE);
  if (!flow || flow.state !== answer.get("state") || Date.now() - flow.at > MOST_MS) {
    throw new Error("This sign-in was not begun in this tab, or long ago. Begin again.");
  }
  if (answer.has("iss") && answer.get("iss") !== flow.iss) throw new Error("Another issuer has answered. Begin again.");
  if (answer.has("error")) throw new Error("The sign-in was refused or cancelled there. Begin again, or ask its operator.");
  return redeemed({ issuer: flow.issuer, code: answer.get("code") ?? "", code_verifier: flow.verifier, nonce: flow.nonce });
}

/** The next credential of one that has a refresh token. Throws an Error. */
export const refreshed = ({ issuer, refresh }) => redeemed({ issuer, refresh_token: refresh });

async function redeemed(json) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(json) };
  const response = await fetch("/api/sign-in/token", options);
  const found = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(found.detail ?? "The sign-in can't be completed. Begin again.");
  return {
    token: found.token, session: null, issuer: json.issuer, name: found.name,
    refresh: found.refresh_token ?? json.refresh_token ?? null, until: Date.now() + 1000 * found.expires_in,
  };
}

/** A button for each issuer; nothing if only keys are accepted. */
export function Issuers() {
  const [offers, setOffers] = useState([]);
  useEffect(() => {
    fetch("/api/sign-in").then((answer) => answer.json()).then(({ items }) => setOffers(items ?? [])).catch(() => {});
  }, []);
  const shown = offers.filter((offer) => offer.redirect_uri);
  if (!shown.length) return null;
  return html`<div class="issuers">${shown.map((offer) => html`
    <button type="button" disabled=${!offer.available} onClick=${() => leave(offer)}>Sign in with ${offer.label}</button>
    ${!offer.available && html`<p class="hint">${offer.label} does not answer now. Try again in a minute.</p>`}`)}</div>`;
}

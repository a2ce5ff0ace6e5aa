// Signs in with an API key, or with the handle of one session.

import { html, useState } from "../vendor/preact.js";
import { Problem, get, keepCredential, ofSession } from "../api.js";
import { Failure } from "../parts.js";

export function SignIn({ onSignIn }) {
  const [token, setToken] = useState("");
  const [session, setSession] = useState("");
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const handle = token.startsWith("H-");

  async function submit(event) {
    event.preventDefault();
    setBusy(true);
    const given = { token: token.trim(), session: handle ? session.trim() : null };
    keepCredential(given); // for the call that tries it
    try {
      await get(handle ? ofSession(given.session) : "/api/sessions?limit=1");
      onSignIn(given);
    } catch (failed) {
      keepCredential(null);
      setError(failed instanceof Problem && failed.status === 401
        ? new Error("This key or handle is not known. The admin key is in the state directory, or in PADDOCK_ADMIN_KEY.") : failed);
      setBusy(false);
    }
  }

  return html`<main class="sign-in"><form onSubmit=${submit}>
    <h1>Paddock</h1>
    <label>API key, or a session's handle
      <input type="password" autocomplete="off" required autofocus value=${token}
        onInput=${(event) => setToken(event.target.value)} /></label>
    ${handle && html`<label>Id of the handle's session
      <input required value=${session} onInput=${(event) => setSession(event.target.value)} /></label>`}
    <button class="primary" disabled=${busy}>Sign in</button>
    ${error && html`<${Failure} error=${error} />`}
    <p class="hint">It is kept for this tab only.</p>
  </form></main>`;
}

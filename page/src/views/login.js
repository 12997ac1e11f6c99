// Log in with a token.
import { useState } from "preact/hooks";
import { html } from "../lib/html.js";
import { isLoginNeeded, post } from "../lib/api.js";
import { readSession } from "../lib/session.js";
import { go } from "../lib/router.js";
import { useTitle } from "../parts/basics.js";
import { Mark } from "../parts/mark.js";

export function Login({ isPlace }) {
  useTitle("Log in");
  const [token, setToken] = useState("");
  const [error, setError] = useState(null);
  const [isGoing, setGoing] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setGoing(true);
    setError(null);
    try {
      await post("/login", { token: token.trim() });
      await readSession();
      isLoginNeeded.value = false;
      if (isPlace) go("/", { isReplacing: true });
    } catch (refused) {
      setError(refused);
    } finally {
      setGoing(false);
    }
  };
  return html`<main class="login" id="main">
    <form class="card" onSubmit=${submit}>
      <h1 class="brand"><${Mark} /> Onager</h1>
      <p class="muted">This cluster asks who you are. Paste your token, or your line of the schedulers' token file.</p>
      <input class="hidden" type="text" name="username" autocomplete="username" value="onager" readonly tabindex="-1" aria-hidden="true" />
      <label>Token
        <input
          type="password"
          autocomplete="current-password"
          value=${token}
          required
          aria-invalid=${error ? "true" : undefined}
          aria-describedby=${error ? "login-error" : undefined}
          onInput=${(event) => setToken(event.currentTarget.value)}
        />
      </label>
      ${error && html`<div id="login-error" class="note bad" role="alert">${error.message}</div>`}
      <button class="primary" type="submit" disabled=${isGoing || !token.trim()}>Log in</button>
    </form>
  </main>`;
}

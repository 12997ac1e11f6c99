// JSX without a compiler: html`<p>…</p>` makes what Preact renders.
import { h } from "preact";
import htm from "htm";

export const html = htm.bind(h);

// SQL with its words, texts, numbers and comments distinguished.
import { html } from "../lib/html.js";

const WORDS = new Set(
  `add all alter and anti any array as asc between by cache case cast create cross cube current date delete desc describe
  distinct drop else end except exists explain false filter first following for from full function group grouping having if
  in inner insert intersect interval into is join last lateral left like limit map minus natural not null nulls offset on
  or order outer over partition pivot preceding qualify range replace right rlike rollup row rows select semi set sets show
  sort struct table tablesample temporary then timestamp true unbounded union unnest unpivot update using values view when
  where window with`.split(/\s+/),
);
const TOKEN = /(--[^\n]*|\/\*[\s\S]*?\*\/)|('(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|`[^`]*`)|(\b\d+(?:\.\d+)?\b)|(\b[A-Za-z_]\w*\b)/g;
const MAX_CHARS = 200_000;

export function Sql({ text }) {
  if (text.length > MAX_CHARS) return html`<pre class="text" tabindex="0">${text}</pre>`;
  const parts = [];
  let end = 0;
  for (const match of text.matchAll(TOKEN)) {
    const [token, comment, quoted, number, word] = match;
    const kind = comment ? "c" : quoted ? "s" : number ? "n" : word && WORDS.has(word.toLowerCase()) ? "k" : "";
    if (!kind) continue;
    parts.push(text.slice(end, match.index), html`<span class=${kind}>${token}</span>`);
    end = match.index + token.length;
  }
  parts.push(text.slice(end));
  return html`<pre class="text sql" tabindex="0"><code>${parts}</code></pre>`;
}

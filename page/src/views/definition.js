// What was submitted: SQL or the name of a function, what it reads and writes, and its settings.
import { html } from "../lib/html.js";
import { Copied } from "../parts/basics.js";
import { Sql } from "../parts/sql.js";

export function Definition({ job }) {
  const spec = job.spec ?? {};
  const conf = Object.entries(spec.conf ?? {}).sort(([a], [b]) => a.localeCompare(b));
  return html`
    ${spec.sql?.text &&
    html`<section class="card" aria-label="SQL">
      <header><h2>SQL</h2><${Copied} text=${spec.sql.text} label="Copy the SQL" /></header>
      <${Sql} text=${spec.sql.text} />
    </section>`}
    ${spec.python &&
    html`<section class="card" aria-label="Function">
      <header><h2>Python function</h2></header>
      <dl class="facts inside">
        ${spec.python.function && html`<dt>Function</dt><dd class="mono">${spec.python.function}</dd>`}
        ${spec.python.file_name && html`<dt>File</dt><dd class="mono">${spec.python.file_name}</dd>`}
        ${spec.python.arguments_json && html`<dt>Arguments</dt><dd class="mono">${spec.python.arguments_json}</dd>`}
      </dl>
      <p class="inside muted small">Its code is not shown: it may hold what is not for everybody's eyes.</p>
    </section>`}
    ${(spec.views?.length > 0 || spec.sink) &&
    html`<section class="card" aria-label="Datasets">
      <header><h2>Reads and writes</h2></header>
      <div class="table"><table>
        <thead><tr><th scope="col">Name</th><th scope="col">Path</th><th scope="col">Format</th><th scope="col">Options</th></tr></thead>
        <tbody>
          ${(spec.views ?? []).map(
            (view) => html`<tr key=${view.name}><td class="mono">${view.name}</td><td class="mono">${view.path}</td><td>${view.format || "by its extension"}</td><td class="mono">${options(view.options)}</td></tr>`,
          )}
          ${spec.sink && html`<tr><td>writes (${spec.sink.mode})</td><td class="mono">${spec.sink.path}</td><td>${spec.sink.format}</td><td class="mono">${options(spec.sink.options)}</td></tr>`}
        </tbody>
      </table></div>
    </section>`}
    <section class="card" aria-label="Settings">
      <header><h2>Settings</h2><span class="muted small">what looks like a secret is not shown</span></header>
      ${conf.length
        ? html`<div class="table"><table>
            <thead><tr><th scope="col">Name</th><th scope="col">Value</th></tr></thead>
            <tbody>${conf.map(([name, value]) => html`<tr key=${name}><td class="mono">${name}</td><td class="mono">${value}</td></tr>`)}</tbody>
          </table></div>`
        : html`<p class="inside muted">None: it runs with the defaults.</p>`}
    </section>
    ${job.schema?.fields && html`<section class="card" aria-label="Columns of the result">
      <header><h2>Columns of the result</h2></header>
      <div class="table"><table>
        <thead><tr><th scope="col">Column</th><th scope="col">Type</th></tr></thead>
        <tbody>${job.schema.fields.map((field) => html`<tr key=${field.name}><td class="mono">${field.name}</td><td class="mono">${typeof field.type === "string" ? field.type : field.type?.type}</td></tr>`)}</tbody>
      </table></div>
    </section>`}
  `;
}

function options(all) {
  return Object.entries(all ?? {}).map(([name, value]) => `${name}=${value}`).join(", ");
}

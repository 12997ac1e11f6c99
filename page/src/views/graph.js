// The graph of a job's stages, live.
import { graphlib, layout } from "@dagrejs/dagre";
import { useMemo } from "preact/hooks";
import { html } from "../lib/html.js";
import { count, duration, words } from "../lib/format.js";
import { tone } from "../parts/basics.js";

const WIDTH = 190;
const HEIGHT = 58;
const MAX_STAGES = 400;

export function Graph({ job, now }) {
  const { stages } = job;
  const shape = stages.map((stage) => `${stage.stage_id}<${stage.input_stage_ids.join(",")}`).join(";");
  const placed = useMemo(() => (stages.length <= MAX_STAGES ? place(stages) : null), [shape]);
  if (!placed) return html`<p class="inside muted">${count(stages.length)} stages are too many for a picture: see Stages.</p>`;
  const byId = new Map(stages.map((stage) => [stage.stage_id, stage]));
  return html`<div class="graph" tabindex="0" role="group" aria-label="The graph of stages">
    <svg width=${placed.width} height=${placed.height} viewBox=${`0 0 ${placed.width} ${placed.height}`}>
      <defs>
        <marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
          <path class="tip" d="M0 0L8 4L0 8z" />
        </marker>
      </defs>
      ${placed.edges.map((edge) => html`<path key=${edge.key} class="edge" d=${edge.path} marker-end="url(#tip)" />`)}
      ${placed.nodes.map(
        (node) => byId.has(node.id) && html`<${Box} key=${node.id} job=${job} stage=${byId.get(node.id)} node=${node} now=${now} />`,
      )}
    </svg>
  </div>`;
}

function Box({ job, stage, node, now }) {
  const { partitions: total, successful: done, running } = stage;
  const wide = WIDTH - 24;
  const part = (n) => (total ? (wide * Math.min(n, total)) / total : 0);
  const took = stage.started_ms ? (stage.ended_ms || now) - stage.started_ms : 0;
  const label = `Stage ${stage.stage_id}, ${stage.name}: ${words(stage.state)}, ${done} of ${total} tasks`;
  return html`<a
    href=${`/jobs/${encodeURIComponent(job.job_id)}/stages?stage=${stage.stage_id}`}
    class=${tone(stage.state)}
    aria-label=${label}
    transform=${`translate(${node.x - WIDTH / 2} ${node.y - HEIGHT / 2})`}
  >
    <title>${label}</title>
    <rect class="box" width=${WIDTH} height=${HEIGHT} rx="6" />
    <rect class="edge-of-state" width="4" height=${HEIGHT - 2} x="1" y="1" rx="2" />
    <text class="title" x="13" y="18">${cut(`${stage.stage_id} ${stage.name}`, 23)}</text>
    <text class="side" x="13" y="34">${`${count(done)} / ${count(total)}`}${stage.attempt ? ` · attempt ${stage.attempt}` : ""}</text>
    <text class="side" x=${WIDTH - 11} y="34" text-anchor="end">${took > 0 ? duration(took) : words(stage.state)}</text>
    <rect class="track" x="13" y="43" width=${wide} height="5" rx="2.5" />
    <rect class="done" x="13" y="43" width=${part(done)} height="5" rx="2.5" />
    <rect class="part" x=${13 + part(done)} y="43" width=${part(running)} height="5" rx="2.5" />
  </a>`;
}

function place(stages) {
  const graph = new graphlib.Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 18, ranksep: 46, marginx: 16, marginy: 16 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const stage of stages) graph.setNode(String(stage.stage_id), { width: WIDTH, height: HEIGHT });
  for (const stage of stages) {
    for (const input of stage.input_stage_ids) graph.setEdge(String(input), String(stage.stage_id));
    // Planning comes before everything that has no input of its own.
    if (!stage.input_stage_ids.length && stage.work !== "plan") {
      for (const plan of stages) if (plan.work === "plan") graph.setEdge(String(plan.stage_id), String(stage.stage_id));
    }
  }
  layout(graph);
  const { width, height } = graph.graph();
  return {
    width: Math.ceil(width),
    height: Math.ceil(height),
    nodes: graph.nodes().map((id) => ({ id: Number(id), ...graph.node(id) })),
    edges: graph.edges().map((edge) => ({ key: `${edge.v}-${edge.w}`, path: curve(ends(graph.node(edge.v), graph.node(edge.w), graph.edge(edge).points)) })),
  };
}

/** Edges leave a stage at its right side, come in at the left, and go around the stages between. */
function ends(from, to, points) {
  const around = points.length > 3 ? points.slice(2, -2) : [];
  return [{ x: from.x + WIDTH / 2, y: from.y }, ...around, { x: to.x - WIDTH / 2, y: to.y }];
}

function curve(points) {
  const [first, ...rest] = points;
  let path = `M${first.x} ${first.y}`;
  for (let i = 0; i < rest.length; i += 1) {
    const from = i ? rest[i - 1] : first;
    const to = rest[i];
    const middle = (from.x + to.x) / 2;
    path += `C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`;
  }
  return path;
}

function cut(text, chars) {
  return text.length > chars ? `${text.slice(0, chars - 1)}…` : text;
}

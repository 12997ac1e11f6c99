// Where everything of a timeline lies, drawing it, and finding what the pointer is at. No state of its own.

const LEFT = 148;
const RIGHT = 12;
const AXIS = 22;
const MARKS = 20;
const STAGE_ROW = 16;
const MAX_STAGE_ROWS = 8;
const GAP = 8;
const BUCKET_LANE = 30;
const ROW_HEIGHTS = [
  [12, 15],
  [40, 10],
  [150, 6],
];
const THIN_ROW = 3;
const FONT = "11px system-ui, sans-serif";
const LINES = new Set(["take_over", "executor_lost", "stage_rollback", "streaming_given_up", "cancelled"]);
const STEPS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, 864e5];

/** Return where lanes and rows lie; all lengths in CSS pixels. */
export function layOut(timeline, width) {
  const rows = timeline.lanes.reduce((sum, lane) => sum + Math.max(1, lane.rows ?? 1), 0);
  const rowHeight = (ROW_HEIGHTS.find(([most]) => rows <= most) ?? [0, THIN_ROW])[1];
  const { placed, stageRows } = placeStages(timeline.stages);
  const stagesTop = AXIS + MARKS;
  let top = stagesTop + stageRows * STAGE_ROW + GAP;
  const lanes = timeline.lanes.map((lane) => {
    const height = timeline.bucketMs ? BUCKET_LANE : Math.max(STAGE_ROW, Math.max(1, lane.rows ?? 1) * rowHeight);
    const made = { top, height, lane };
    top += height + GAP;
    return made;
  });
  const inner = Math.max(1, width - LEFT - RIGHT);
  return {
    width,
    height: Math.max(80, top),
    rowHeight,
    lanes,
    stages: placed,
    stagesTop,
    xOf: (ms, from, to) => LEFT + ((ms - from) / Math.max(1, to - from)) * inner,
    timeAt: (x, from, to) => from + ((Math.min(Math.max(x, LEFT), LEFT + inner) - LEFT) / inner) * (to - from),
  };
}

/** Stages that do not overlap share a row. */
function placeStages(stages) {
  const ends = [];
  const placed = [];
  for (const stage of [...stages].sort((a, b) => a.from_ms - b.from_ms)) {
    let row = ends.findIndex((end) => end <= stage.from_ms);
    if (row < 0) {
      if (ends.length >= MAX_STAGE_ROWS) continue;
      row = ends.length;
    }
    ends[row] = stage.to_ms ?? Infinity;
    placed.push({ stage, row });
  }
  return { placed, stageRows: ends.length };
}

export function draw(canvas, timeline, plan, view) {
  const ratio = Math.min(devicePixelRatio || 1, 2);
  const [wide, high] = [Math.round(plan.width * ratio), Math.round(plan.height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) [canvas.width, canvas.height] = [wide, high];
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, plan.width, plan.height);
  pen.font = FONT;
  pen.textBaseline = "middle";
  const paint = colours(view.colour);
  drawAxis(pen, timeline, plan, view, paint);
  drawLabels(pen, plan, paint);
  pen.save();
  pen.beginPath();
  pen.rect(LEFT - 1, 0, plan.width - LEFT - RIGHT + 2, plan.height);
  pen.clip();
  drawStages(pen, plan, view, paint);
  if (timeline.bucketMs) drawBuckets(pen, timeline, plan, view, paint);
  else drawBars(pen, timeline, plan, view, paint);
  drawMarks(pen, timeline, plan, view, paint);
  if (view.drag) {
    pen.fillStyle = paint.accent;
    pen.globalAlpha = 0.15;
    pen.fillRect(Math.min(...view.drag), AXIS, Math.abs(view.drag[1] - view.drag[0]), plan.height);
    pen.globalAlpha = 1;
  }
  pen.restore();
}

function colours(of) {
  return {
    text: of("--text"),
    muted: of("--muted"),
    line: of("--line"),
    surface: of("--surface"),
    accent: of("--accent"),
    good: of("--good"),
    bad: of("--bad"),
    warn: of("--warn"),
    idle: of("--idle"),
    sunken: of("--sunken"),
  };
}

function ofOutcome(outcome, paint) {
  switch (outcome) {
    case "successful":
      return paint.good;
    case "running":
      return paint.accent;
    case "failed":
    case "lost":
      return paint.bad;
    default:
      return paint.idle;
  }
}

function drawAxis(pen, timeline, plan, view, paint) {
  const span = Math.max(1, view.to - view.from);
  const step = STEPS_MS.find((each) => (each / span) * (plan.width - LEFT) >= 84) ?? STEPS_MS[STEPS_MS.length - 1];
  const start = timeline.submitted_ms;
  pen.strokeStyle = paint.line;
  pen.fillStyle = paint.muted;
  pen.lineWidth = 1;
  for (let after = Math.ceil((view.from - start) / step) * step; start + after <= view.to; after += step) {
    const x = Math.round(plan.xOf(start + after, view.from, view.to)) + 0.5;
    pen.beginPath();
    pen.moveTo(x, AXIS);
    pen.lineTo(x, plan.height);
    pen.stroke();
    if (x < plan.width - 40) pen.fillText(axisText(after, step), x + 3, AXIS / 2);
  }
}

function axisText(ms, step) {
  if (ms === 0) return "0";
  const sign = ms < 0 ? "-" : "";
  const whole = Math.abs(ms);
  if (whole < 1000) return `${sign}${whole} ms`;
  if (whole < 60_000) return `${sign}${(whole / 1000).toFixed(step < 100 ? 2 : step < 1000 ? 1 : 0)} s`;
  const pad = (n) => String(Math.floor(n)).padStart(2, "0");
  return `${sign}${Math.floor(whole / 3600e3) ? `${Math.floor(whole / 3600e3)}:` : ""}${pad((whole / 60e3) % 60)}:${pad((whole / 1000) % 60)}`;
}

function drawLabels(pen, plan, paint) {
  for (const { top, height, lane } of plan.lanes) {
    pen.fillStyle = paint.sunken;
    pen.fillRect(LEFT, top, plan.width - LEFT - RIGHT, height);
    pen.fillStyle = paint.text;
    pen.fillText(fitted(pen, lane.executor_id, LEFT - 16), 4, top + Math.min(height / 2, 12));
  }
  if (plan.stages.length) {
    pen.fillStyle = paint.muted;
    pen.fillText("stages", 4, plan.stagesTop + STAGE_ROW / 2);
  }
}

function fitted(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let shown = text;
  while (shown.length > 1 && pen.measureText(`${shown}…`).width > width) shown = shown.slice(0, -1);
  return `${shown}…`;
}

function drawStages(pen, plan, view, paint) {
  for (const { stage, row } of plan.stages) {
    const x = plan.xOf(stage.from_ms, view.from, view.to);
    const end = plan.xOf(stage.to_ms ?? view.untilMs, view.from, view.to);
    if (end < LEFT || x > plan.width) continue;
    const top = plan.stagesTop + row * STAGE_ROW;
    const width = Math.max(1.5, end - x - 1);
    pen.globalAlpha = 0.25;
    pen.fillStyle = ofOutcome(stage.outcome, paint);
    pen.fillRect(x, top + 1, width, STAGE_ROW - 3);
    pen.globalAlpha = 1;
    const from = Math.max(x, LEFT);
    if (end - from > 26) {
      pen.fillStyle = paint.text;
      pen.fillText(fitted(pen, `${stage.stage} ${stage.name}`, end - from - 8), from + 4, top + STAGE_ROW / 2);
    }
  }
}

function drawBars(pen, timeline, plan, view, paint) {
  // Bars begin and end at whole pixels of the screen: an attempt of a millisecond has its full colour, too.
  const ratio = pen.getTransform().a;
  const snapped = (x) => Math.round(x * ratio) / ratio;
  for (const bar of timeline.bars.values()) {
    const x = snapped(plan.xOf(bar.from_ms, view.from, view.to));
    const end = snapped(plan.xOf(bar.to_ms ?? view.untilMs, view.from, view.to));
    if (end < LEFT || x > plan.width) continue;
    const lane = plan.lanes[bar.lane ?? 0];
    if (!lane) continue;
    const top = lane.top + (bar.row ?? 0) * plan.rowHeight;
    const high = plan.rowHeight > 4 ? plan.rowHeight - 1.5 : plan.rowHeight - 0.5;
    const width = Math.max(1, end - x - 0.75);
    pen.fillStyle = ofOutcome(bar.outcome, paint);
    if (bar.speculative) {
      pen.globalAlpha = 0.6;
    }
    // What it waited at the executor is a thin line before the bar.
    const waited = Math.min(width, snapped(((bar.queued_ms ?? 0) / Math.max(1, view.to - view.from)) * (plan.width - LEFT - RIGHT)));
    if (waited > 1) pen.fillRect(x, top + high / 2 - 1, waited, 2);
    pen.fillRect(x + (waited > 1 ? waited : 0), top, Math.max(1, width - (waited > 1 ? waited : 0)), high);
    pen.globalAlpha = 1;
    if (plan.rowHeight >= 15 && width - waited > 34) {
      pen.fillStyle = paint.surface;
      const from = Math.max(x + waited, LEFT);
      const text = `${bar.stage ?? 0}.${bar.partition ?? 0}${bar.attempt ? ` (attempt ${bar.attempt})` : ""}`;
      pen.fillText(fitted(pen, text, end - from - 8), from + 4, top + high / 2 + 0.5);
    }
  }
}

function drawBuckets(pen, timeline, plan, view, paint) {
  const most = new Map();
  for (const bucket of timeline.buckets) {
    const lane = bucket.lane ?? 0;
    most.set(lane, Math.max(most.get(lane) ?? 0.01, bucket.running ?? 0));
  }
  for (const bucket of timeline.buckets) {
    const x = plan.xOf(bucket.from_ms, view.from, view.to);
    const end = plan.xOf(bucket.from_ms + timeline.bucketMs, view.from, view.to);
    if (end < LEFT || x > plan.width) continue;
    const lane = plan.lanes[bucket.lane ?? 0];
    if (!lane) continue;
    const ends = (bucket.successful ?? 0) + (bucket.failed ?? 0) + (bucket.lost ?? 0);
    const high = ((bucket.running ?? 0) / most.get(bucket.lane ?? 0)) * (lane.height - 4);
    const width = Math.max(1, end - x);
    pen.fillStyle = bucket.successful || !ends ? paint.good : paint.accent;
    pen.globalAlpha = 0.65;
    pen.fillRect(x, lane.top + lane.height - high, width, high);
    pen.globalAlpha = 1;
    const bad = (bucket.failed ?? 0) + (bucket.lost ?? 0);
    if (bad) {
      pen.fillStyle = paint.bad;
      pen.fillRect(x, lane.top, width, Math.max(3, (bad / Math.max(1, ends)) * lane.height));
    }
  }
}

function ofMark(kind, paint) {
  if (kind === "take_over") return paint.warn;
  if (["executor_lost", "stage_rollback", "cancelled", "task_retry"].includes(kind)) return paint.bad;
  return paint.muted;
}

function drawMarks(pen, timeline, plan, view, paint) {
  const y = AXIS + MARKS / 2;
  for (const mark of timeline.marks.values()) {
    const x = Math.round(plan.xOf(mark.at_ms, view.from, view.to)) + 0.5;
    if (x < LEFT - 1 || x > plan.width) continue;
    const colour = ofMark(mark.kind, paint);
    if (LINES.has(mark.kind)) {
      pen.strokeStyle = colour;
      pen.lineWidth = 1.5;
      pen.setLineDash(mark.kind === "take_over" ? [] : [4, 3]);
      pen.beginPath();
      pen.moveTo(x, y);
      pen.lineTo(x, plan.height);
      pen.stroke();
      pen.setLineDash([]);
    }
    const r = mark.kind === "task_retry" ? 3 : 5;
    pen.fillStyle = colour;
    pen.beginPath();
    pen.moveTo(x, y - r);
    pen.lineTo(x + r, y);
    pen.lineTo(x, y + r);
    pen.lineTo(x - r, y);
    pen.fill();
  }
}

/** Return {mark}, {stage}, {bar} or {bucket} at a point, or null. */
export function hit(timeline, plan, { x, y, from, to, untilMs }) {
  if (x < LEFT - 6) return null;
  if (y >= AXIS && y < AXIS + MARKS) {
    let best = null;
    let least = 7;
    for (const mark of timeline.marks.values()) {
      const off = Math.abs(plan.xOf(mark.at_ms, from, to) - x);
      if (off < least) [best, least] = [mark, off];
    }
    return best && { mark: best };
  }
  const at = plan.timeAt(x, from, to);
  const spare = ((to - from) / Math.max(1, plan.width)) * 2; // narrow bars can be hit, too
  if (y >= plan.stagesTop && y < (plan.lanes[0]?.top ?? 0) - GAP) {
    const row = Math.floor((y - plan.stagesTop) / STAGE_ROW);
    const found = plan.stages.find((each) => each.row === row && each.stage.from_ms <= at + spare && (each.stage.to_ms ?? untilMs) >= at - spare);
    return found ? { stage: found.stage } : null;
  }
  const index = plan.lanes.findIndex((lane) => y >= lane.top && y < lane.top + lane.height);
  if (index < 0) return null;
  if (timeline.bucketMs) {
    const bucket = timeline.buckets.find((each) => (each.lane ?? 0) === index && at >= each.from_ms && at < each.from_ms + timeline.bucketMs);
    return bucket ? { bucket } : null;
  }
  const row = Math.floor((y - plan.lanes[index].top) / plan.rowHeight);
  for (const bar of timeline.bars.values()) {
    if ((bar.lane ?? 0) !== index || (bar.row ?? 0) !== row) continue;
    if (bar.from_ms <= at + spare && (bar.to_ms ?? untilMs) >= at - spare) return { bar };
  }
  return null;
}

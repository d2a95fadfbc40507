// Reads the append-only NDJSON trace (recap/trace.py) as it grows. A trace may hold several runs, one
// after the other: the answer itself, then other decoders on the same turn.

const SOURCES = {
  "3-token": { key: "k3", name: "3-token key", shape: "circle" },
  "2-token": { key: "k2", name: "2-token key", shape: "square" },
  "1-token": { key: "k1", name: "1-token key", shape: "triangle" },
  lookup: { key: "lookup", name: "lookup", shape: "diamond" },
  "runner-up": { key: "runner", name: "runner-up", shape: "drop" },
  table: { key: "table", name: "Token Recycling's table", shape: "hexagon" },
};
const DECODERS = {
  recap: "Recap",
  token_recycling: "Token Recycling",
  prompt_lookup: "Prompt lookup",
  autoregressive: "Plain",
};

function sourceOf(name) {
  return SOURCES[name] || { key: "other", name: String(name), shape: "circle" };
}

function nameOf(run) {
  return String(run.start.label || DECODERS[run.start.decoder] || run.start.decoder);
}

const placeOf = (run) => (run.start.label ? 9 : Object.keys(DECODERS).indexOf(run.start.decoder));

function readStep(data) {
  const known = new Map(data.stored || []);
  const nodes = data.nodes.map((n, row) => ({
    row,
    token: n[0],
    text: n[1],
    parent: n[2],
    depth: n[3],
    source: n[4],
    score: n[5],
    rank: n[6],
    votes: n[7],
    // What was known where the target judged this token or its siblings; nothing on other branches.
    known: known.get(n[2]),
  }));
  return {
    index: data.index,
    rows: data.packed_tokens,
    accepted: data.accepted,
    own: data.bonus,
    ownText: data.bonus_text,
    ids: data.token_ids,
    texts: data.texts,
    levels: data.sources,
    ms: data.ms,
    // An end-of-answer token may cut the step before the target's own token.
    ownShown: data.token_ids.length > data.accepted.length,
    ownKnown: known.get(data.accepted.length ? data.accepted[data.accepted.length - 1] : 0),
    nodes,
  };
}

// The answer's tokens: {text, id, step, row, source}. Step -1 is the prefill, source "own" the target.
function tokensOf(step, position) {
  return step.texts.map((text, i) => {
    const row = i < step.accepted.length ? step.accepted[i] : -1;
    const node = row >= 0 ? step.nodes[row] : null;
    const source = row < 0 ? "own" : node ? node.source : "unknown";
    return { text, id: step.ids[i], step: position, row, source };
  });
}

// Would another image change this token of the run? Unknown counts as no, and so does all that stands behind
// a token which is not the answer's that was looked at.
function changesOf(run, swap) {
  if (!swap) return [];
  const parted = run.tokens.findIndex((token, i) => token.id !== swap.ids[i]);
  return swap.changes.slice(0, parted < 0 ? run.tokens.length : parted);
}

// Lines that a step's tree takes with every branch open: its leaves.
function linesOf(step) {
  const parents = new Set(step.nodes.map((node) => node.parent));
  return 1 + step.nodes.filter((node) => !parents.has(node.row)).length;
}

// feed(text) -> true if the trace began anew (another turn), else it grew.
function createTrace() {
  const trace = { runs: [], bad: 0, swap: null, feed };
  let consumed = 0;
  let head = "";
  let current = null; // the run that lines belong to

  function feed(text) {
    const firstLine = text.slice(0, Math.max(0, text.indexOf("\n")));
    const anew = text.length < consumed || firstLine !== head;
    if (anew) {
      trace.runs = [];
      current = null;
      trace.bad = 0;
      trace.swap = null;
      consumed = 0;
      head = firstLine;
    }
    const end = text.lastIndexOf("\n") + 1; // a line without its end is not there yet
    for (const line of text.slice(consumed, end).split("\n")) if (line) readLine(line);
    consumed = Math.max(consumed, end);
    return anew;
  }

  function readLine(line) {
    let data;
    try {
      data = JSON.parse(line);
    } catch (error) {
      trace.bad += 1;
      return;
    }
    if (data.type === "start") {
      const run = { start: data, steps: [], turn: null, tokens: [], ms: [0], lines: 1 };
      if (data.first_token !== undefined) {
        const text = data.first_text ?? "";
        run.tokens.push({ text, id: data.first_token, step: -1, row: -1, source: "own" });
      }
      const at = trace.runs.findIndex((other) => nameOf(other) === nameOf(run));
      if (at >= 0) trace.runs[at] = run; // a decoder that ran again counts anew
      else trace.runs.push(run);
      // The answer's own run first, the others in one order, whichever ran first.
      const [answer, ...others] = trace.runs;
      trace.runs = [answer, ...others.sort((a, b) => placeOf(a) - placeOf(b))];
      current = run;
      return;
    }
    const run = current;
    if (!run) trace.bad += 1;
    else if (data.type === "swap") trace.swap = data; // another image in the place of this turn's
    else if (data.type === "turn") run.turn = data;
    else if (data.type === "step") {
      const step = readStep(data);
      run.tokens.push(...tokensOf(step, run.steps.length));
      run.steps.push(step);
      run.lines = Math.max(run.lines, linesOf(step));
      run.ms.push(run.ms[run.ms.length - 1] + step.ms[0] + step.ms[1] + step.ms[2]);
    }
  }

  return trace;
}

// Untrusted token text -> what is shown: blanks and line ends made visible, cut at `limit` characters.
function showToken(text, limit = 12) {
  if (text === "") return "∅";
  const shown = Array.from(text, (c) => {
    if (c === " " || c === "\u00a0") return "·";
    if (c === "\n") return "⏎";
    if (c === "\t") return "⇥";
    if (c < " ") return String.fromCharCode(0x2400 + c.charCodeAt(0));
    if (/[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/.test(c)) return "◌";
    return c;
  });
  return shown.length > limit ? shown.slice(0, limit - 1).join("") + "…" : shown.join("");
}

function count(n, one, many = one + "s") {
  return `${n} ${n === 1 ? one : many}`;
}

// The spoken sentence of a step.
function sentenceOf(step, position) {
  const drafted = step.rows - 1;
  const own = step.ownShown
    ? `the model's own next token is “${showToken(step.ownText, 24)}”`
    : "the answer ends here";
  if (!drafted) return `Step ${position + 1}: nothing was drafted; ${own}.`;
  const by = {};
  for (const row of step.accepted) {
    const node = step.nodes[row];
    if (node) by[node.source] = (by[node.source] || 0) + 1;
  }
  const parts = Object.keys(by).map((s) => `${by[s]} from ${sourceOf(s).name}${s.endsWith("token") ? "s" : ""}`);
  const taken = step.accepted.length;
  const from = parts.length ? ` (${parts.join(", ")})` : "";
  return `Step ${position + 1}: ${taken || "none"} of ${count(drafted, "drafted token")} accepted${from}; ${own}.`;
}

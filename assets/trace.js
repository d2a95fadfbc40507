// Reads the NDJSON trace (recap/trace.py) of one turn, as it grows. It holds one run after the other: the
// answer itself, then other decoders on the same turn; a run that is repeated replaces its lines. `NAMES` (assets/names.json) and
// `FORMAT` (the trace's version) are in scope.

function sourceOf(name) {
  if (Object.hasOwn(NAMES.sources, name)) return { ...NAMES.sources[name], mark: `rt-from-${name}` };
  return { name: String(name), shape: "circle", mark: "rt-from-other" };
}

function nameOf(run) {
  const label = run.start.label || run.start.decoder;
  return String(NAMES.runs[label]?.name || label);
}

const orderOf = (run) => Object.keys(NAMES.runs).indexOf(run.start.label || run.start.decoder);

function readStep(data) {
  const stored = new Map(data.stored || []);
  const nodes = data.nodes.map((n, index) => ({
    index,
    token: n[0],
    text: n[1],
    parent: n[2],
    depth: n[3],
    source: n[4],
    score: n[5],
    rank: n[6],
    contributions: n[7],
    // What the sources predicted where the target judged this token or its siblings; nothing on other branches.
    stored: stored.get(n[2]),
  }));
  return {
    packedTokens: data.packed_tokens,
    accepted: data.accepted,
    bonus: data.bonus,
    bonusText: data.bonus_text,
    ids: data.token_ids,
    texts: data.texts,
    ms: data.ms,
    // An end-of-answer token may cut the step before the bonus token.
    bonusShown: data.token_ids.length > data.accepted.length,
    bonusStored: stored.get(data.accepted.length ? data.accepted[data.accepted.length - 1] : 0),
    nodes,
  };
}

// The answer's tokens: {text, id, step, node, source}. Step -1 is the prefill; node BONUS has the source "bonus".
function tokensOf(step, position) {
  return step.texts.map((text, i) => {
    const node = i < step.accepted.length ? step.accepted[i] : BONUS;
    const source = node === BONUS ? "bonus" : (step.nodes[node]?.source ?? "unknown");
    return { text, id: step.ids[i], step: position, node, source };
  });
}

// Whether another image would change each token of the run. Only tokens up to the first that differs from the
// answer that was examined are known.
function changesOf(run, swap) {
  if (!swap) return [];
  const divergence = run.tokens.findIndex((token, i) => token.id !== swap.ids[i]);
  return swap.changes.slice(0, divergence < 0 ? run.tokens.length : divergence);
}

// Lines that a step's tree takes with every branch open: its leaves.
function linesOf(step) {
  const parents = new Set(step.nodes.map((node) => node.parent));
  return 1 + step.nodes.filter((node) => !parents.has(node.index)).length;
}

// What tells one turn from the next, in a trace's first line.
function turnOf(text) {
  try {
    return JSON.parse(text.slice(0, text.indexOf("\n"))).turn;
  } catch (error) {
    return undefined;
  }
}

// feed(text) -> what became of the trace: "grown", "rewritten" (the same turn) or "new". `refused` says why a trace
// is not read.
// The server sends a turn's trace once, then only the runs that are new or ran again, behind a line of type
// "more". merge(known, text) -> the whole trace; lines of another turn than the known one change nothing.
function merge(known, text) {
  if (!text.startsWith('{"type":"more"')) return text;
  if (turnOf(text) !== turnOf(known)) return known;
  const parts = new Map(); // by run; one that ran again takes its old place
  let part = "";
  for (const line of `${known}${text.slice(text.indexOf("\n") + 1)}`.split("\n")) {
    const opens = line.startsWith('{"type":"start"') || line.startsWith('{"type":"swap"');
    if (opens) {
      const { label, decoder, type } = JSON.parse(line);
      part = label || decoder || type;
      parts.set(part, "");
    }
    if (line) parts.set(part, `${parts.get(part)}${line}\n`);
  }
  return [...parts.values()].join("");
}

function createTrace() {
  const trace = { runs: [], bad: 0, swap: null, refused: "", feed };
  let read = "";
  let current = null; // the run that lines belong to

  function feed(text) {
    let change = "grown";
    if (!text.startsWith(read)) {
      change = turnOf(text) !== undefined && turnOf(text) === turnOf(read) ? "rewritten" : "new";
      Object.assign(trace, { runs: [], bad: 0, swap: null, refused: "" });
      current = null;
      read = "";
    }
    const end = text.lastIndexOf("\n") + 1; // an incomplete last line is read when the rest has come
    for (const line of text.slice(read.length, end).split("\n")) if (line) readLine(line);
    if (!read) change = change === "grown" ? "new" : change;
    read = text.slice(0, end);
    if (trace.refused) trace.runs = [];
    return change;
  }

  function readLine(line) {
    let data;
    try {
      data = JSON.parse(line);
    } catch (error) {
      trace.bad += 1;
      return;
    }
    if (data.type === "start") return startRun(data);
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

  function startRun(data) {
    current = null;
    if (data.format !== FORMAT) trace.refused = `This trace has format ${data.format ?? "unknown"}, and this page reads format ${FORMAT}: record it again.`;
    if (trace.refused) return;
    const run = { start: data, steps: [], turn: null, tokens: [], ms: [0], lines: 1 };
    if (data.first_token !== undefined) {
      run.tokens.push({ text: data.first_text ?? "", id: data.first_token, step: -1, node: BONUS, source: "bonus" });
    }
    const at = trace.runs.findIndex((other) => nameOf(other) === nameOf(run));
    if (at >= 0) trace.runs[at] = run; // a decoder that ran again replaces its run
    else trace.runs.push(run);
    // The answer's own run first, the others in one order, whichever ran first.
    const [answer, ...others] = trace.runs;
    trace.runs = [answer, ...others.sort((a, b) => orderOf(a) - orderOf(b))];
    current = run;
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

function count(n, one) {
  return `${n} ${one}${n === 1 ? "" : "s"}`;
}

// The spoken sentence of a step.
function sentenceOf(step, position) {
  const guessed = step.packedTokens - 1;
  const bonus = step.bonusShown ? `the model's own next token is “${showToken(step.bonusText, 24)}”` : "the answer ends here";
  if (!guessed) return `Step ${position + 1}: nothing was guessed; ${bonus}.`;
  const by = Object.create(null); // a file may name any source
  for (const node of step.accepted) {
    const source = step.nodes[node]?.source;
    if (source) by[source] = (by[source] || 0) + 1;
  }
  const parts = Object.keys(by).map((source) => `${by[source]} from ${sourceOf(source).name}`);
  const from = parts.length ? ` (${parts.join(", ")})` : "";
  return `Step ${position + 1}: ${step.accepted.length || "none"} of ${count(guessed, "guessed token")} accepted${from}; ${bonus}.`;
}

// The inspector: reads the trace, keeps which run and step is shown, and draws. Mounted once, as the
// js_on_load of one gr.HTML; `element`, `props`, `watch` are Gradio's (a saved web page defines its own).

const counters = (window.__recapTree = window.__recapTree || { mounts: 0, updates: 0, live: 0, steps: 0, draws: 0, drawn: [] });
counters.mounts += 1;

const MOST_LINES = 20; // of a tree; unlikely branches are closed until a person opens them
const ASK = "Ask something, and every step of the answer is drawn here.";
const trace = createTrace();
// `selected` and `pinned` are nodes of the shown tree, `own` is the conversation's trace while a file is shown.
const state = { run: 0, step: -1, follow: true, peek: null, selected: null, pinned: null, timer: 0, all: false, race: false, live: null, opened: new Set(), text: "", file: "", own: "" };
const host = element.querySelector(".rt") || element;
const reduced = window.matchMedia("(prefers-reduced-motion: reduce)");

// ---- the parts -----------------------------------------------------------------------------------

const runsBar = el("div", { class: "rt-runs rt-whose", role: "group", "aria-label": "Whose steps are shown" });
const summary = el("span", { class: "rt-summary" });
const race = createRace();
const raceButton = button("Race the decoders on one clock", "race", () => setRace(!state.race), { class: "rt-button rt-pill rt-race-button" });
const on = { peek, pick: step };
const tokenStrip = createTokenStrip(on);
const stepStrip = createStepStrip(on);
const slider = el("input", { type: "range", min: 1, max: 1, value: 1, class: "rt-slider", "aria-label": "Step", oninput: () => step(slider.valueAsNumber - 1) });
const playButton = button("Play the steps", icon("play"), () => (state.timer ? pause() : play()));
const speed = el(
  "select",
  { class: "rt-speed", "aria-label": "Steps per second" },
  ...[1, 2, 5, 10, 30].map((n) => el("option", { value: n, selected: n === 2 }, `${n}/s`)),
);
const followButton = button("Follow the newest step", "follow live", () => setFollow(!state.follow), { class: "rt-button rt-pill" });
const allButton = button("Open every branch, or close the unlikely ones", "all branches", toggleAll, { class: "rt-button rt-pill" });
const position = el("output", { class: "rt-position" });
const controls = el(
  "div",
  { class: "rt-controls" },
  button("First step", icon("first"), () => step(0)),
  button("One step back", icon("back"), () => step(shown() - 1)),
  playButton,
  button("One step on", icon("on"), () => step(shown() + 1)),
  button("Last step", icon("last"), () => step(run() ? run().steps.length - 1 : 0)),
  slider,
  position,
  speed,
  followButton,
  allButton,
);
const swapped = el("p", { class: "rt-swapped", hidden: true });
const sentence = el("p", { class: "rt-sentence", "aria-live": "polite" });
const picture = svg("svg", { class: "rt-tree", role: "img", "aria-label": "Candidate tree" });
const stage = el(
  "div",
  { class: "rt-stage", tabindex: 0, role: "group", "aria-label": "Candidate tree. Left and right: steps. Up and down: tokens. Home, End, Space: first, last, play." },
  picture,
);
const details = el("div", { class: "rt-details", "aria-live": "polite", hidden: true });
const forest = el("div", { class: "rt-forest" }, stage, details);
const hint = el("p", { class: "rt-hint" }, "Point at a token to see where it came from; click to keep it. “+3” opens a closed branch.");
const empty = el("p", { class: "rt-empty" }, ASK);
const files = createFiles({ source: () => (trace.refused ? "" : state.text), open: openFile, close: closeFile, tell: (text) => (summary.textContent = text) });
host.replaceChildren(
  el(
    "div",
    { class: "rt-view" },
    el("div", { class: "rt-top" }, el("div", { class: "rt-runs" }, runsBar, raceButton), summary),
    race.element,
    el("div", { class: "rt-body" }, tokenStrip.element, swapped, stepStrip.element, controls, sentence, forest, hint),
    empty,
  ),
  createLegend(),
  files.element,
);
const body = host.querySelector(".rt-body");

// What another image would change, if the trace holds it: marks in both strips, and a sentence.
let marked = null; // the run and the changes that the marks show
function markImages(now) {
  const swap = now === trace.runs[state.run] ? trace.swap : null;
  const key = swap && `${nameOf(now)} ${now.tokens.length}`;
  if (marked && marked.run === now && marked.swap === swap && marked.key === key) return;
  marked = { run: now, swap, key };
  const changes = changesOf(now, swap);
  tokenStrip.images(changes);
  stepStrip.images(changes);
  const n = changes.filter(Boolean).length;
  swapped.hidden = !swap;
  swapped.textContent = swap ? `Shown “${swap.image}” instead, the model would have chosen ${n} of these ${count(changes.length, "token")} differently: they are overlined here, and a mark stands over the steps that begin with one.` : "";
}

// ---- what is shown -------------------------------------------------------------------------------

// During an answer there is only its newest step, as a run of one step; the trace comes at the end.
const live = () => (state.follow ? state.live : null);
function run() {
  return live() || trace.runs[state.run] || null;
}
function shown() {
  return state.peek ?? state.step;
}
function clamp(position) {
  return Math.max(0, Math.min(position, run() ? run().steps.length - 1 : 0));
}

function goTo(position, { keepFollow = false } = {}) {
  if (!run() || !run().steps.length) return;
  if (!keepFollow) setFollow(false);
  state.peek = null;
  state.step = clamp(position);
  state.selected = state.pinned = null;
  state.opened = new Set();
  draw();
}

// Choosing a step ends the playing.
function step(position) {
  pause();
  goTo(position);
}

function peek(position, node = null) {
  if (state.timer || (position === state.peek && node === state.selected)) return;
  if (position !== state.peek) state.opened = new Set();
  state.peek = position === state.step ? null : position;
  state.selected = position === null ? state.pinned : node;
  draw();
}

function setFollow(follow) {
  state.follow = follow;
  followButton.setAttribute("aria-pressed", String(follow));
  if (follow && run()) {
    pause();
    goTo(run().steps.length - 1, { keepFollow: true });
  }
}

function setRace(open) {
  state.race = open;
  raceButton.setAttribute("aria-pressed", String(open));
  pause();
  race.pause();
  drawRuns();
  draw();
  if (open && !reduced.matches) race.go();
}

function toggleAll() {
  state.all = !state.all;
  allButton.setAttribute("aria-pressed", String(state.all));
  draw();
}

function chooseRun(index) {
  pause();
  if (state.race) setRace(false);
  state.run = index;
  state.step = clamp(state.step < 0 ? Infinity : state.step);
  state.peek = state.selected = state.pinned = null;
  state.opened = new Set();
  drawRuns();
  draw();
}

function play() {
  if (!run() || !run().steps.length) return;
  setFollow(false);
  if (state.step >= run().steps.length - 1) goTo(0);
  const tick = () => {
    if (state.step >= run().steps.length - 1) return pause();
    goTo(state.step + 1);
    state.timer = setTimeout(tick, 1000 / Number(speed.value));
  };
  state.timer = setTimeout(tick, 1000 / Number(speed.value));
  showPlaying();
}

function pause() {
  clearTimeout(state.timer);
  state.timer = 0;
  showPlaying();
}

function showPlaying() {
  const label = state.timer ? "Pause" : "Play the steps";
  playButton.replaceChildren(icon(state.timer ? "pause" : "play"));
  playButton.setAttribute("aria-label", label);
  playButton.title = label;
}

// ---- drawing -------------------------------------------------------------------------------------

let layout = null;

function draw() {
  const now = run();
  const has = Boolean(now && now.steps.length);
  empty.textContent = trace.refused || ASK;
  race.element.hidden = !state.race;
  body.hidden = !has || state.race;
  empty.hidden = has;
  if (!has) return;
  const at = clamp(shown());
  const step = now.steps[at];
  tokenStrip.update(now);
  stepStrip.update(now);
  markImages(now);
  layout = layoutTree(step, state.opened, state.all ? Infinity : MOST_LINES);
  drawTree(picture, layout);
  // As high as this run's largest tree needs, so that nothing jumps between steps.
  stage.style.setProperty("--tree", `${TOP + LINE * Math.max(6, Math.min(now.lines, MOST_LINES)) + 18}px`);
  counters.draws += 1;
  counters.drawn[at] = (counters.drawn[at] || 0) + 1;

  slider.max = now.steps.length;
  slider.value = at + 1;
  slider.setAttribute("aria-valuetext", `step ${at + 1} of ${now.steps.length}`);
  position.textContent = now.taken ? `step ${now.taken}` : `${at + 1} / ${now.steps.length}`;
  sentence.setAttribute("aria-live", state.timer || state.peek !== null || !now.turn ? "off" : "polite");
  sentence.textContent = sentenceOf(step, now.taken ? now.taken - 1 : at);
  picture.setAttribute("aria-label", `Candidate tree. ${sentence.textContent}`);
  allButton.hidden = !layout.folded && !state.all;
  stepStrip.mark(at);
  tokenStrip.mark(at, state.selected ?? undefined);
  select(state.selected);
}

function spotOf(node) {
  return layout ? layout.spots.find((spot) => spot.index === node) : undefined;
}

function select(node) {
  picture.querySelector(".rt-selected")?.classList.remove("rt-selected");
  const spot = node === null ? undefined : spotOf(node);
  details.hidden = !spot;
  if (!spot) return details.replaceChildren();
  picture.querySelector(`[data-node="${node}"]`)?.classList.add("rt-selected");
  details.replaceChildren(detailsOf(spot));
  // Over the half of the tree where the token is not, and only as much as that half holds.
  const y = yOf(spot) - stage.scrollTop;
  const up = y > stage.clientHeight / 2;
  details.classList.toggle("rt-up", up);
  details.classList.remove("rt-brief");
  details.classList.toggle("rt-brief", details.offsetHeight > (up ? y : stage.clientHeight - y) - LINE / 2);
}

function hover(spot) {
  state.selected = spot ? spot.index : state.pinned;
  select(state.selected);
  tokenStrip.mark(clamp(shown()), state.selected ?? undefined);
}

function click(spot) {
  if (spot.hidden) {
    state.opened.add(spot.index);
    return draw();
  }
  if (state.peek !== null) goTo(state.peek);
  state.selected = state.pinned = spot.index;
  select(spot.index);
}

function drawRuns() {
  runsBar.replaceChildren(
    ...(live() ? [live()] : trace.runs).map((r, index) =>
      el(
        "button",
        { type: "button", class: "rt-button rt-pill", "aria-pressed": String((r === live() || index === state.run) && !state.race), onclick: () => chooseRun(index) },
        nameOf(r),
      ),
    ),
  );
  race.update(trace.runs);
  raceButton.hidden = Boolean(live()) || trace.runs.filter((r) => r.turn).length < 2;
  const now = run();
  if (!now) return (summary.textContent = "");
  const tokens = now.answered || now.tokens.length;
  const steps = now.taken || now.steps.length;
  const seconds = now.ms[now.ms.length - 1] / 1000;
  const figures = !steps ? ["reading"] : [count(tokens, "token"), count(steps, "step")];
  if (now.taken) figures.push("answering");
  else if (steps) figures.push(`${((tokens - 1) / steps).toFixed(2)} tokens per step`, `${((tokens - 1) / seconds).toFixed(0)} tokens/s`);
  files.opened(Boolean(state.file));
  if (state.file) figures.unshift(`file: ${state.file}${trace.bad || trace.runs.some((r) => !r.turn) ? " (it ends in the middle)" : ""}`);
  else if (now.start.recorded) figures.unshift(`recorded earlier on ${now.start.device}, ${now.start.dtype}: ${now.start.recorded}`);
  summary.textContent = figures.join("  ·  ");
}

// ---- the trace as it arrives ----------------------------------------------------------------------

// A trace from a file stays until the next answer begins.
function openFile(text, name) {
  state.file = name;
  show(text);
  setFollow(false);
  goTo(0);
}

// Back from a file to the conversation's own trace.
function closeFile() {
  state.file = "";
  show("\n"); // forget the file, even if its first line is the conversation's
  show(state.own);
}

// The conversation's trace has changed. An opened file stays if it is still the same turn's (a comparison ended).
function update() {
  const before = turnOf(state.own);
  state.own = merge(state.own, String(props.value || ""));
  counters.updates += 1;
  state.live = null;
  if (state.file && state.own && turnOf(state.own) === before) return drawRuns();
  state.file = "";
  show(state.own);
}

// The newest step of the answer in the chat, a few times a second; runs beside it are not shown.
function showLive({ detail }) {
  const before = state.live;
  state.live = null;
  if (detail && !detail.beside) {
    const step = readStep(detail.step);
    const whole = { text: detail.text, id: null, step: -1, node: BONUS, source: "bonus", whole: true };
    counters.live += 1;
    if (!before || before.start.turn !== detail.start.turn) {
      if (state.file) closeFile();
      if (state.race) setRace(false);
      setFollow(true);
    }
    state.live = { start: detail.start, steps: [step], tokens: [whole], turn: null, ms: [0, 1], lines: linesOf(step), taken: detail.passes, answered: detail.tokens };
  } else if (!before) return;
  state.peek = state.selected = state.pinned = null;
  drawRuns();
  draw();
}

function show(text) {
  state.text = text;
  const before = run();
  const runs = trace.runs.length;
  const change = trace.feed(text);
  if (change === "new") {
    pause();
    if (state.race) setRace(false);
    Object.assign(state, { run: 0, step: -1, peek: null, selected: null, pinned: null, opened: new Set() });
    counters.drawn = [];
    setFollow(true);
  } else {
    const rerun = trace.runs.findIndex((r) => r.start.label && r.turn);
    const same = trace.runs.findIndex((r) => before && nameOf(r) === nameOf(before));
    state.run = trace.runs.length > runs && rerun >= 0 ? rerun : Math.max(0, same); // show what new settings did
    state.step = clamp(state.step);
  }
  counters.steps = trace.runs.reduce((n, r) => n + r.steps.length, 0);
  drawRuns();
  const now = run();
  if (state.follow && now && now.steps.length && state.step !== now.steps.length - 1) goTo(now.steps.length - 1, { keepFollow: true });
  else if (now && !state.follow && state.peek === null) {
    tokenStrip.update(now);
    stepStrip.update(now);
    slider.max = Math.max(1, now.steps.length);
  } else if (!now || !now.steps.length) draw();
  if (change === "rewritten") draw();
  if (now && now.steps.length) markImages(now);
}

watchTree(picture, spotOf, { hover, click });
followButton.hidden = !props.script; // a saved web page has nothing to follow
setFollow(true);
watch("value", update);
window.addEventListener("recap-live", showLive);
update();
if (run() && run().start.recorded) {
  // the first view shows the step that accepted most
  const steps = run().steps.map((step) => step.accepted.length);
  goTo(steps.indexOf(Math.max(...steps)));
}

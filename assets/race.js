// The race: every decoder's run of the same turn, replayed on one clock from its measured step times.
// Reading the prompt is left out: it is the same for all.

function createRace() {
  const state = { runs: [], lanes: [], clock: 0, end: 0, frame: 0, before: 0 };
  const clock = el("output", { class: "rt-clock" });
  const start = el("button", { type: "button", class: "rt-button rt-pill", onclick: () => (state.frame ? pause() : go()) }, "start the race");
  const again = el("button", { type: "button", class: "rt-button rt-pill", onclick: () => set(0) }, "back to the start");
  const speed = el(
    "select",
    { class: "rt-speed", "aria-label": "Speed of the clock" },
    ...[[0.01, "1/100"], [0.04, "1/25"], [0.1, "1/10"], [0.25, "1/4"], [0.5, "1/2"], [1, "real time"]].map(([value, text]) => el("option", { value }, text)),
  );
  const lanes = el("div", { class: "rt-lanes" });
  const result = el("p", { class: "rt-sentence", "aria-live": "polite" });
  const note = el("p", { class: "rt-hint" }, "Measured step times, replayed on one clock. The decoders ran one after the other from the same state; reading the prompt and drawing this page are left out.");
  const element = el("div", { class: "rt-race" }, el("div", { class: "rt-controls" }, start, again, speed, clock), lanes, result, note);

  function update(runs) {
    const ready = runs.filter((run) => run.turn);
    if (ready.length === state.runs.length && ready.every((run, i) => run === state.runs[i])) return;
    pause();
    state.runs = ready;
    state.end = Math.max(0, ...ready.map((run) => run.ms[run.ms.length - 1]));
    state.lanes = ready.map(newLane);
    lanes.replaceChildren(...state.lanes.map((lane) => lane.element));
    // A race of a fraction of a second is slowed down, so that there is something to see.
    speed.value = ["1", "0.5", "0.25", "0.1", "0.04", "0.01"].find((slow) => state.end / slow > 2500) || "0.01";
    set(state.end);
  }

  function newLane(run) {
    const counts = [1]; // tokens after k steps; the first token comes from the prefill
    for (const step of run.steps) counts.push(counts[counts.length - 1] + step.texts.length);
    const name = nameOf(run);
    const bar = el("div", { class: "rt-lane-bar" });
    const figures = el("span", { class: "rt-lane-figures" });
    const text = el("div", { class: "rt-lane-text" });
    const element = el("div", { class: "rt-lane" }, el("div", { class: "rt-lane-head" }, el("strong", {}, name), figures), el("div", { class: "rt-lane-track" }, bar), text);
    return { run, counts, bar, figures, text, element, name, shown: -1 };
  }

  function set(clockMs) {
    state.clock = Math.min(clockMs, state.end);
    clock.textContent = `${(state.clock / 1000).toFixed(2)} s of ${(state.end / 1000).toFixed(2)} s`;
    for (const lane of state.lanes) drawLane(lane);
    const over = state.clock >= state.end && state.end > 0;
    result.textContent = over ? order() : "";
  }

  function drawLane(lane) {
    const { run, counts } = lane;
    let steps = Math.max(0, lane.shown);
    if (run.ms[steps] > state.clock) steps = 0;
    while (steps + 1 < run.ms.length && run.ms[steps + 1] <= state.clock) steps += 1;
    const last = run.ms.length - 1;
    const tokens = counts[steps];
    const seconds = Math.min(state.clock, run.ms[last]) / 1000;
    const rate = seconds > 0 ? ((tokens - 1) / seconds).toFixed(0) : "0";
    const each = steps ? ((tokens - 1) / steps).toFixed(2) : "0.00";
    const done = steps === last ? `done in ${(run.ms[last] / 1000).toFixed(2)} s  ·  ` : "";
    lane.figures.textContent = `${done}${count(tokens, "token")}  ·  ${count(steps, "step")}  ·  ${each} tokens per step  ·  ${rate} tokens/s`;
    lane.bar.style.width = `${(100 * tokens) / counts[last]}%`;
    if (steps !== lane.shown) {
      const shown = run.turn.finish_reason === "eos" ? Math.min(tokens, run.tokens.length - 1) : tokens; // the end mark is no text
      lane.text.textContent = run.tokens.slice(0, shown).map((t) => t.text).join("").trimStart();
      lane.text.scrollTop = lane.text.scrollHeight;
    }
    lane.shown = steps;
  }

  function order() {
    const times = state.lanes.map((lane) => [lane.name, lane.run.ms[lane.run.ms.length - 1] / 1000]).sort((a, b) => a[1] - b[1]);
    return times.map(([name, s], i) => `${i + 1}. ${name} ${s.toFixed(2)} s`).join("   ");
  }

  function go() {
    if (state.clock >= state.end) set(0);
    state.before = 0;
    const frame = (now) => {
      if (state.before) set(state.clock + (now - state.before) * Number(speed.value));
      state.before = now;
      if (state.clock >= state.end) return pause();
      state.frame = requestAnimationFrame(frame);
    };
    state.frame = requestAnimationFrame(frame);
    start.textContent = "pause";
  }

  function pause() {
    cancelAnimationFrame(state.frame);
    state.frame = 0;
    start.textContent = state.clock > 0 && state.clock < state.end ? "go on" : "start the race";
  }

  return { element, update, pause, go };
}

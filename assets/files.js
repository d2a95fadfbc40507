// Traces as files: save the shown one, open one, save a web page that needs nothing else. All of it happens in
// the browser; nothing is sent.

// `source()` -> the trace's text; `open(text, name)` shows another one, `close()` the conversation's own again,
// `tell(text)` shows a sentence.
function createFiles({ source, open, close, tell }) {
  const input = el("input", { type: "file", accept: ".ndjson,.jsonl,.txt", class: "rt-file", "aria-label": "Open a trace file", tabindex: -1, onchange: read });
  const back = el("button", { type: "button", class: "rt-link", hidden: true, onclick: close }, "close the file");
  const element = el(
    "div",
    { class: "rt-files" },
    el("button", { type: "button", class: "rt-link", onclick: () => save("recap-trace.ndjson", "application/x-ndjson", source()) }, "save this trace"),
    el("button", { type: "button", class: "rt-link", onclick: () => input.click() }, "open a trace"),
    props.script ? el("button", { type: "button", class: "rt-link", onclick: () => save("recap-trace.html", "text/html", source() && webPage(source())) }, "save as a web page") : null,
    back,
    input,
  );

  function save(name, type, text) {
    if (!text) return tell("There is nothing to save yet.");
    const url = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
    el("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  async function read() {
    const file = input.files[0];
    input.value = "";
    if (!file) return;
    const text = (await file.text()).replace(/\r\n/g, "\n").replace(/\n?$/, "\n");
    const probe = createTrace();
    probe.feed(text);
    if (probe.refused) return tell(`“${file.name}”: ${probe.refused}`);
    if (!probe.runs.some((run) => run.steps.length)) return tell(`“${file.name}” is not a trace of this program.`);
    open(text, file.name);
  }

  return { element, opened: (is) => (back.hidden = !is) };
}

// One HTML file with the style, the script and the trace in it. In the trace only strings hold a “<”, and
// there it may be written as an escape; so no tag can begin in it.
function webPage(trace) {
  const close = "<" + "/script>";
  const probe = createTrace(); // a file's first line may be damaged
  probe.feed(trace);
  const start = probe.runs[0].start;
  const words = [start.question && `“${start.question}”`, start.model, start.device, start.dtype, new Date().toISOString().slice(0, 10)];
  const about = words.filter(Boolean).join(" · ").replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
  const safe = trace.replace(/</g, "\\u003c");
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Recap: one answer, step by step</title><style>${props.style}
body { margin: 24px auto; max-width: 1200px; padding: 0 20px; font-family: system-ui, sans-serif; background: #fff; }
</style></head>
<body><h1>Recap: one answer, step by step</h1><p>${about}</p><main id="inspector"><div class="rt"></div></main>
<script type="application/x-ndjson" id="trace">${safe}${close}
<script>(function () {
const element = document.getElementById("inspector");
const props = { value: document.getElementById("trace").textContent };
const watch = () => {};
${props.script}
})();${close}</body></html>
`;
}

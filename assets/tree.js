// Draws one step's candidate tree as SVG. Token text is untrusted: it reaches the page through textContent
// alone.

const COLUMN = 122; // px, the same at every step
const LINE = 21;
const LEFT = 14;
const TOP = 20;
const SVG_NS = "http://www.w3.org/2000/svg";

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG_NS, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.filter((c) => c !== null));
  return node;
}

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((c) => c !== null)); // strings become text nodes, never markup
  return node;
}

// The mark of a source: colour says it and the shape says it again. Centred on (0, 0).
function mark(source, r = 5) {
  const { shape, key } = sourceOf(source);
  const attributes = { class: `rt-mark rt-${key}` };
  if (shape === "circle") return svg("circle", { ...attributes, r });
  if (shape === "square") {
    const s = r * 0.88;
    return svg("rect", { ...attributes, x: -s, y: -s, width: 2 * s, height: 2 * s });
  }
  const corners = { triangle: [-90, 30, 150], drop: [90, 210, 330], diamond: [0, 90, 180, 270], hexagon: [0, 60, 120, 180, 240, 300] };
  const scale = shape === "hexagon" ? 1 : 1.2;
  const points = corners[shape].map((degrees) => {
    const a = (degrees * Math.PI) / 180;
    return `${(r * scale * Math.cos(a)).toFixed(2)},${(r * scale * Math.sin(a)).toFixed(2)}`;
  });
  return svg("polygon", { ...attributes, points: points.join(" ") });
}

const ownMark = (r = 5) =>
  svg("g", { class: "rt-own-mark" }, svg("circle", { r: r + 1 }), svg("circle", { r: r - 2.5, class: "rt-own-dot" }));
const rootMark = () => svg("rect", { class: "rt-root-mark", x: -2, y: -7, width: 4, height: 14, rx: 1 });

function xOf(spot) {
  return LEFT + spot.column * COLUMN;
}
function yOf(spot) {
  return TOP + spot.line * LINE;
}
const cellOf = (spot) => (spot.kind === "rejected" ? 7.3 : 8); // px a character: the others are bold and larger
function labelEnd(spot) {
  return xOf(spot) + 14 + cellOf(spot) * cells(showToken(spot.node.text)) + (spot.hidden ? 34 : 0);
}

function edgePath(edge) {
  const { from, to } = edge;
  const x = xOf(to) - 10;
  if (from.line === to.line) return `M${Math.min(labelEnd(from), x - 6)} ${yOf(to)}H${x}`;
  const trunk = xOf(to) - 20;
  return `M${trunk} ${yOf(from)}V${yOf(to)}H${x}`;
}

// Draws `layout` into `target` (an <svg>). Nodes carry their row; `watchTree` calls back.
function drawTree(target, layout) {
  const width = LEFT + layout.columns * COLUMN + 16;
  const height = TOP + layout.lines * LINE;
  target.setAttribute("width", width);
  target.setAttribute("height", height);
  target.setAttribute("viewBox", `0 0 ${width} ${height}`);

  const back = svg("g", { class: "rt-edges" });
  const order = { rejected: 0, accepted: 1, own: 2 };
  for (const edge of [...layout.edges].sort((a, b) => order[a.kind] - order[b.kind]))
    back.append(svg("path", { class: `rt-edge rt-edge-${edge.kind}`, d: edgePath(edge) }));

  const front = svg("g", { class: "rt-nodes" });
  for (const spot of layout.nodes) front.append(drawNode(spot));
  target.replaceChildren(back, front);
}

// Calls back with the spot under the pointer (null: none any more) and with the one that is clicked; three
// listeners for the whole picture: a tree is drawn anew at every step.
function watchTree(target, spotOf, on) {
  const at = (event) => {
    const node = event.target.closest?.(".rt-node");
    return node ? spotOf(Number(node.dataset.row)) || null : null;
  };
  let over = null;
  const look = (spot) => spot !== over && on.look((over = spot));
  target.addEventListener("mouseover", (event) => look(at(event)));
  target.addEventListener("mouseleave", () => look(null));
  target.addEventListener("click", (event) => at(event) && on.click(at(event)));
}

function drawNode(spot) {
  const { node, kind } = spot;
  const shown = showToken(node.text);
  const width = Math.min(COLUMN - 6, 24 + cellOf(spot) * cells(shown));
  const label = svg("text", { x: 12, y: 4, class: "rt-label" });
  label.textContent = shown;
  const picture = kind === "own" ? ownMark() : kind === "root" ? rootMark() : mark(node.source);
  const group = svg(
    "g",
    { class: `rt-node rt-${kind}`, transform: `translate(${xOf(spot)} ${yOf(spot)})`, "data-row": spot.row },
    svg("rect", { class: "rt-hit", x: -9, y: -LINE / 2 + 1, width, height: LINE - 2, rx: 4 }),
    picture,
    label,
  );
  if (spot.hidden) {
    const more = svg("text", { x: 18 + 7.3 * cells(shown), y: 4, class: "rt-more" });
    more.textContent = `+${spot.hidden}`;
    group.append(more);
  }
  return group;
}

// ---- details of one node -------------------------------------------------------------------------

const small = (p) => (p < 0.0005 ? "< .001" : p.toFixed(3)); // there, however improbable
const percent = (p) => (p >= 0.0995 ? `${(100 * p).toFixed(0)} %` : p > 0 && p < 0.0005 ? "< 0.1 %" : `${(100 * p).toFixed(1)} %`);

const KINDS = {
  root: "root: the last confirmed token",
  accepted: "accepted",
  own: "the target's own next token (not drafted)",
  rejected: "rejected",
};

function detailsOf(spot) {
  const { node, kind } = spot;
  const literal = el("code", { class: "rt-literal" });
  literal.textContent = JSON.stringify(node.text);
  const facts = [["token id", node.token ?? "not recorded"], ["depth", node.depth]];
  if (kind === "accepted" || kind === "rejected") {
    facts.push(["rank among siblings", node.rank + 1], ["score of the branch", percent(node.score)]);
    facts.push(["strongest source", sourceOf(node.source).name]);
  }
  const list = el("dl", { class: "rt-facts" });
  for (const [name, value] of facts) list.append(el("div", {}, el("dt", {}, name), el("dd", {}, String(value))));
  return el(
    "div",
    { class: "rt-detail" },
    el("div", { class: "rt-about" }, el("div", { class: "rt-detail-head" }, literal, el("span", { class: `rt-tag rt-tag-${kind}` }, KINDS[kind])), list),
    votesOf(node),
    rowsOf(node),
  );
}

// The rows themselves, where the target judged: what each source held to be next, and what they came to.
function rowsOf(node) {
  if (!node.known) return null;
  const lines = Object.entries(node.known).map(([source, row]) => {
    const name = source === "mixed" ? "mixed" : sourceOf(source).name;
    const picture = source === "mixed" ? null : svg("svg", { viewBox: "-7 -7 14 14", width: 12, height: 12, "aria-hidden": "true" }, mark(source));
    const entries = row.map(([text, probability]) => {
      const entry = el("span", { class: text === node.text ? "rt-entry rt-this" : "rt-entry" });
      entry.textContent = `${showToken(text)} ${probability < 0.005 ? "<.01" : probability.toFixed(2).replace(/^0/, "")}`;
      return entry;
    });
    return el("div", { class: "rt-row" }, el("dt", {}, picture, ` ${name}`), el("dd", {}, ...entries));
  });
  return el("dl", { class: "rt-rows", "aria-label": "What each source held to be next, with its probability" }, ...lines);
}

// What each level said, and how it mixed: weight x probability, summed. The entropy of a memory's row is in
// % of the largest that its entries can have; the confidence is what is left to 1.
function votesOf(node) {
  if (!node.votes || !node.votes.length) return null;
  const rows = node.votes.map(([level, weight, probability, confidence]) => {
    const icon = svg("svg", { viewBox: "-7 -7 14 14", width: 12, height: 12, "aria-hidden": "true" }, mark(level));
    const part = weight * probability;
    const bar = el("span", { class: `rt-bar rt-bar-${sourceOf(level).key}` });
    bar.style.width = `${Math.max(1, Math.round(60 * part))}px`;
    return el(
      "tr",
      {},
      el("th", { scope: "row" }, icon, ` ${sourceOf(level).name}`),
      el("td", {}, level.endsWith("token") ? `${Math.round(100 * (1 - confidence))} %` : "–"),
      el("td", {}, confidence.toFixed(2)),
      el("td", {}, weight.toFixed(2)),
      el("td", {}, probability ? small(probability) : "not in its row"),
      el("td", {}, probability ? small(part) : part.toFixed(3), " ", bar),
    );
  });
  const total = node.votes.reduce((sum, v) => sum + v[1] * v[2], 0);
  const head = ["level", "entropy", "confidence", "weight", "× probability", "= share"];
  return el(
    "table",
    { class: "rt-votes" },
    el("thead", {}, el("tr", {}, ...head.map((h) => el("th", { scope: "col" }, h)))),
    el("tbody", {}, ...rows),
    el("tfoot", {}, el("tr", {}, el("th", { scope: "row", colspan: 5 }, "mixed probability"), el("td", {}, total.toFixed(3)))),
  );
}

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
const CORNERS = { "triangle-up": [-90, 30, 150], "triangle-down": [90, 210, 330], diamond: [0, 90, 180, 270], hexagon: [0, 60, 120, 180, 240, 300] };
function markOf(source, r = 5) {
  const { shape, mark } = sourceOf(source);
  const attributes = { class: `rt-mark ${mark}` };
  if (shape === "circle") return svg("circle", { ...attributes, r });
  if (shape === "square") {
    const s = r * 0.88;
    return svg("rect", { ...attributes, x: -s, y: -s, width: 2 * s, height: 2 * s });
  }
  const scale = shape === "hexagon" ? 1 : 1.2;
  const points = CORNERS[shape].map((degrees) => {
    const a = (degrees * Math.PI) / 180;
    return `${(r * scale * Math.cos(a)).toFixed(2)},${(r * scale * Math.sin(a)).toFixed(2)}`;
  });
  return svg("polygon", { ...attributes, points: points.join(" ") });
}

const bonusMark = (r = 5) =>
  svg("g", { class: "rt-bonus-mark" }, svg("circle", { r: r + 1 }), svg("circle", { r: r - 2.5, class: "rt-bonus-dot" }));
const rootMark = () => svg("rect", { class: "rt-root-mark", x: -2, y: -7, width: 4, height: 14, rx: 1 });
const iconOf = (source) => svg("svg", { viewBox: "-7 -7 14 14", width: 12, height: 12, "aria-hidden": "true" }, markOf(source));

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

// Draws `layout` into `target` (an <svg>). Each node carries its index; `watchTree` calls back.
function drawTree(target, layout) {
  const width = LEFT + layout.columns * COLUMN + 16;
  const height = TOP + layout.lines * LINE;
  target.setAttribute("width", width);
  target.setAttribute("height", height);
  target.setAttribute("viewBox", `0 0 ${width} ${height}`);

  const back = svg("g", { class: "rt-edges" });
  const order = { rejected: 0, accepted: 1, bonus: 2 };
  for (const edge of [...layout.edges].sort((a, b) => order[a.kind] - order[b.kind]))
    back.append(svg("path", { class: `rt-edge rt-edge-${edge.kind}`, d: edgePath(edge) }));
  target.replaceChildren(back, svg("g", { class: "rt-nodes" }, ...layout.spots.map(drawNode)));
}

// Calls back with the spot under the pointer (null when it leaves) and with the one that is clicked. The
// listeners sit on the whole picture, whose nodes are replaced at every step.
function watchTree(target, spotOf, on) {
  const at = (event) => {
    const node = event.target.closest?.(".rt-node");
    return node ? spotOf(Number(node.dataset.node)) || null : null;
  };
  let over = null;
  const hover = (spot) => spot !== over && on.hover((over = spot));
  target.addEventListener("mouseover", (event) => hover(at(event)));
  target.addEventListener("mouseleave", () => hover(null));
  target.addEventListener("click", (event) => at(event) && on.click(at(event)));
}

function drawNode(spot) {
  const { node, kind } = spot;
  const shown = showToken(node.text);
  const width = Math.min(COLUMN - 6, 24 + cellOf(spot) * cells(shown));
  const label = svg("text", { x: 12, y: 4, class: "rt-label" });
  label.textContent = shown;
  const picture = kind === "bonus" ? bonusMark() : kind === "root" ? rootMark() : markOf(node.source);
  const group = svg(
    "g",
    { class: `rt-node rt-${kind}`, transform: `translate(${xOf(spot)} ${yOf(spot)})`, "data-node": spot.index },
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
  root: "the last confirmed token",
  accepted: "accepted",
  bonus: "the model's own next token, not guessed",
  rejected: "rejected",
};

function detailsOf({ node, kind }) {
  const literal = el("code", { class: "rt-literal" }, JSON.stringify(node.text));
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
    contributionsOf(node),
    storedOf(node),
  );
}

// The stored predictions where the target judged: what each source predicted next, and their mixture.
function storedOf(node) {
  if (!node.stored) return null;
  const lines = Object.entries(node.stored).map(([source, prediction]) => {
    const head = source === "mixed" ? el("dt", {}, " mixed") : el("dt", {}, iconOf(source), ` ${sourceOf(source).name}`);
    const entries = prediction.map(([text, probability]) => {
      const shown = `${showToken(text)} ${probability < 0.005 ? "<.01" : probability.toFixed(2).replace(/^0/, "")}`;
      return el("span", { class: text === node.text ? "rt-entry rt-this" : "rt-entry" }, shown);
    });
    return el("div", { class: "rt-prediction" }, head, el("dd", {}, ...entries));
  });
  return el("dl", { class: "rt-stored", "aria-label": "What each source predicted to come next, with its probability" }, ...lines);
}

// What each source gave this token: weight x probability, summed. The entropy of a stored prediction is in % of
// the largest that its entries can have; the confidence is the rest to 1.
function contributionsOf(node) {
  if (!node.contributions?.length) return null;
  const rows = node.contributions.map(([source, weight, probability, confidence]) => {
    const part = weight * probability;
    const bar = el("span", { class: `rt-bar ${sourceOf(source).mark}` });
    bar.style.width = `${Math.max(1, Math.round(60 * part))}px`;
    return el(
      "tr",
      {},
      el("th", { scope: "row" }, iconOf(source), ` ${sourceOf(source).name}`),
      el("td", {}, source.endsWith("token") ? `${Math.round(100 * (1 - confidence))} %` : "–"),
      el("td", {}, confidence.toFixed(2)),
      el("td", {}, weight.toFixed(2)),
      el("td", {}, probability ? small(probability) : "not predicted"),
      el("td", {}, probability ? small(part) : part.toFixed(3), " ", bar),
    );
  });
  const total = node.contributions.reduce((sum, [, weight, probability]) => sum + weight * probability, 0);
  const head = ["source", "entropy", "confidence", "weight", "× probability", "= share"];
  return el(
    "table",
    { class: "rt-contributions" },
    el("thead", {}, el("tr", {}, ...head.map((h) => el("th", { scope: "col" }, h)))),
    el("tbody", {}, ...rows),
    el("tfoot", {}, el("tr", {}, el("th", { scope: "row", colspan: 5 }, "mixed probability"), el("td", {}, total.toFixed(3)))),
  );
}

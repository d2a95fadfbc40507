// Buttons with drawn icons, and the legend.

const ICONS = {
  first: "M2 2v10M12 2L5 7l7 5z",
  back: "M10 2L3 7l7 5z",
  play: "M3 1.5L12 7 3 12.5z",
  pause: "M4 2v10M10 2v10",
  on: "M4 2l7 5-7 5z",
  last: "M12 2v10M2 2l7 5-7 5z",
};
const icon = (name) => svg("svg", { viewBox: "0 0 14 14", class: "rt-icon", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));
const button = (label, content, act, more = {}) =>
  el("button", { type: "button", class: "rt-button", "aria-label": label, title: label, onclick: act, ...more }, content);

function createLegend() {
  const picture = (drawn) => svg("svg", { viewBox: "-8 -8 16 16", width: 15, height: 15, "aria-hidden": "true" }, drawn);
  const item = (drawn, text) => el("li", {}, picture(drawn), text);
  const stroke = (kind) => svg("path", { class: `rt-edge rt-edge-${kind}`, d: "M-8 0H8" });
  return el(
    "ul",
    { class: "rt-legend", "aria-label": "Legend" },
    item(rootMark(), KINDS.root),
    item(stroke("accepted"), KINDS.accepted),
    item(stroke("rejected"), KINDS.rejected),
    item(bonusMark(), KINDS.bonus),
    ...Object.entries(NAMES.sources).map(([source, { name }]) => item(markOf(source), name)),
  );
}

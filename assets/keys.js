// Keys of the inspector, while its tree has the focus.

stage.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const last = run() ? run().steps.length - 1 : 0;
  const acts = {
    ArrowLeft: () => goTo(state.step - 1),
    ArrowRight: () => goTo(state.step + 1),
    Home: () => goTo(0),
    End: () => goTo(last),
    " ": () => (state.timer ? pause() : play()),
    ArrowDown: () => move(1),
    ArrowUp: () => move(-1),
    Enter: () => spotOf(state.selected) && click(spotOf(state.selected)),
    Escape: () => ((state.pinned = state.selected = null), select(null)),
  };
  if (!acts[event.key]) return;
  event.preventDefault();
  acts[event.key]();
});

// The next or previous token in reading order: by line, then by column.
function move(by) {
  const order = [...layout.spots].sort((a, b) => a.line - b.line || a.column - b.column);
  const at = order.findIndex((spot) => spot.index === state.selected);
  const spot = order[Math.max(0, Math.min(order.length - 1, at < 0 ? 0 : at + by))];
  state.selected = state.pinned = spot.index;
  select(spot.index);
  picture.querySelector(".rt-selected")?.scrollIntoView({ block: "nearest", inline: "nearest", behavior: reduced.matches ? "auto" : "smooth" });
}

// The inspector without a pointer: keys while its tree has the focus.

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
    Enter: () => spotOf(state.row) && click(spotOf(state.row)),
    Escape: () => ((state.pinned = state.row = null), select(null)),
  };
  if (!acts[event.key]) return;
  event.preventDefault();
  acts[event.key]();
});

// The next or former token in reading order: by line, then by column.
function move(by) {
  const order = [...layout.nodes].sort((a, b) => a.line - b.line || a.column - b.column);
  const at = order.findIndex((spot) => spot.row === state.row);
  const spot = order[Math.max(0, Math.min(order.length - 1, at < 0 ? 0 : at + by))];
  state.row = state.pinned = spot.row;
  select(spot.row);
  picture.querySelector(".rt-selected")?.scrollIntoView({ block: "nearest", inline: "nearest", behavior: reduced.matches ? "auto" : "smooth" });
}

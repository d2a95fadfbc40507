// Two ways to choose a step: the answer's tokens grouped by step, and one bar per step, as high as the tokens
// that the step added.

// -> {element, update(run), mark(position, node)}; `on.peek(position | null, node)`, `on.pick(position)`.
function createTokenStrip(on) {
  const element = el("div", { class: "rt-answer", role: "group", "aria-label": "The answer, token by token, grouped by step" });
  let run = null;
  let groups = []; // group of step -1 (prefill) is groups[0]
  let spans = [];
  let done = 0;
  let marked = null;
  let scrolling = 0;

  element.addEventListener("mouseleave", () => on.peek(null));

  function update(next) {
    if (next !== run) {
      run = next;
      groups = [];
      spans = [];
      done = 0;
      marked = null;
      element.replaceChildren();
    }
    if (!run || done === run.tokens.length) return;
    const near = element.scrollHeight - element.scrollTop - element.clientHeight < 40;
    const fresh = document.createDocumentFragment();
    for (; done < run.tokens.length; done++) {
      const token = run.tokens[done];
      const at = token.step + 1;
      if (!groups[at]) {
        groups[at] = newGroup(token.step);
        fresh.append(groups[at]);
      }
      groups[at].append((spans[done] = newToken(token)));
    }
    element.append(fresh);
    if (near) element.scrollTop = element.scrollHeight;
  }

  function newGroup(position) {
    const name = position < 0 ? "First token, from reading the prompt" : `Step ${position + 1}`;
    const group = el("button", { type: "button", class: "rt-group", tabindex: -1, "aria-label": name, title: name });
    if (position < 0) group.disabled = true;
    group.addEventListener("mouseenter", () => position >= 0 && on.peek(position));
    group.addEventListener("click", () => on.pick(position));
    return group;
  }

  function newToken(token) {
    const span = el("span", { class: `rt-token ${token.node === BONUS ? "rt-bonus-token" : sourceOf(token.source).mark}`, dir: "ltr" });
    span.dataset.node = token.node;
    span.textContent = token.whole ? token.text : showToken(token.text, 40);
    span.addEventListener("mouseenter", () => token.step >= 0 && on.peek(token.step, token.node));
    return span;
  }

  function images(changes) {
    spans.forEach((span, i) => {
      span.classList.toggle("rt-image", Boolean(changes[i]));
      if (changes[i]) span.title = "Another image would change this token";
      else span.removeAttribute("title");
    });
  }

  function mark(position, node) {
    if (marked) marked.group.classList.remove("rt-now");
    marked?.token?.classList.remove("rt-seen");
    const group = groups[position + 1];
    if (!group) return (marked = null);
    const token = node === undefined ? null : group.querySelector(`[data-node="${node}"]`);
    group.classList.add("rt-now");
    token?.classList.add("rt-seen");
    marked = { group, token };
    if (!scrolling) scrolling = requestAnimationFrame(intoView); // once per frame: reading positions forces a layout
  }

  function intoView() {
    scrolling = 0;
    if (!marked) return;
    const top = marked.group.offsetTop;
    if (top < element.scrollTop || top > element.scrollTop + element.clientHeight - 24) element.scrollTop = top - 30;
  }

  return { element, update, mark, images };
}

// -> {element, update(run), mark(position)}. The slider below it does the same for a keyboard and a screen reader.
function createStepStrip(on) {
  const picture = svg("svg", { class: "rt-steps", "aria-hidden": "true", preserveAspectRatio: "none" });
  let run = null;
  let bars = [];
  let dots = [];
  let current = -1;

  function update(next) {
    if (next !== run) {
      run = next;
      bars = [];
      current = -1;
      picture.replaceChildren();
      dots = [];
    }
    const steps = run ? run.steps : [];
    const slots = Math.max(steps.length, 24);
    picture.setAttribute("viewBox", `0 0 ${slots} 9`);
    for (let i = bars.length; i < steps.length; i++) {
      const tokens = steps[i].texts.length;
      const height = Math.min(9, 1 + tokens);
      const bar = svg("rect", { x: i + 0.1, y: 9 - height, width: 0.8, height, class: "rt-step" });
      bar.style.setProperty("--tokens", Math.min(1, 0.25 + tokens / 8));
      picture.append(bar);
      bars.push(bar);
    }
  }

  // A mark over every step whose first token another image would change.
  function images(changes) {
    dots.forEach((dot) => dot.remove());
    dots = [];
    let at = 1;
    for (let i = 0; i < bars.length; i++) {
      if (changes[at]) dots.push(svg("rect", { x: i + 0.25, y: 0, width: 0.5, height: 0.9, class: "rt-step-image" }));
      at += run.steps[i].texts.length;
    }
    picture.append(...dots);
  }

  function mark(position) {
    bars[current]?.classList.remove("rt-now");
    bars[(current = position)]?.classList.add("rt-now");
  }

  function at(event) {
    const box = picture.getBoundingClientRect();
    const slots = Math.max(bars.length, 24);
    const position = Math.floor(((event.clientX - box.left) / box.width) * slots);
    return position >= 0 && position < bars.length ? position : null;
  }
  picture.addEventListener("mousemove", (event) => on.peek(at(event)));
  picture.addEventListener("mouseleave", () => on.peek(null));
  picture.addEventListener("click", (event) => at(event) !== null && on.pick(at(event)));
  return { element: picture, update, mark, images };
}

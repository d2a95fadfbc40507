// The example gallery: thumbnails, and the questions of the one that was picked. The value is a JSON list
// of {title, alt, thumb, questions: [...]} that the server made from assets/examples.

const host = element.querySelector(".rc-picker");
let picked = -1;

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function draw() {
  const examples = JSON.parse(props.value || "[]");
  const thumbs = examples.map((example, index) =>
    el(
      "button",
      { type: "button", class: "rc-thumb", "aria-pressed": String(index === picked), title: example.alt, onclick: () => pick(index) },
      el("img", { src: example.thumb, alt: example.alt, width: 79, height: 60, loading: "lazy" }),
      el("span", {}, example.title),
    ),
  );
  const questions = picked < 0 ? [] : examples[picked].questions;
  const chips = questions.map((text) =>
    el("button", { type: "button", class: "rc-chip", onclick: () => trigger("ask", { text, index: picked }) }, text),
  );
  host.replaceChildren(
    el("div", { class: "rc-thumbs", role: "group", "aria-label": "Examples; each starts a new conversation" }, ...thumbs),
    el("div", { class: "rc-chips", role: "group", "aria-label": "Questions about the picked example" }, ...chips),
  );
}

function pick(index) {
  picked = index;
  draw();
  document.querySelector("#box textarea")?.focus(); // its question stands there: Enter asks it
  trigger("pick", { index });
}

// A new chat begins without the example: its picture has left the box, too.
document.addEventListener("click", (event) => {
  if (!event.target.closest?.("#clear, #chat button[aria-label^=Clear]") || picked < 0) return;
  picked = -1;
  draw();
});

watch("value", draw);
draw();

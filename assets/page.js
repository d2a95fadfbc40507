// Runs once when the page has loaded: the chat's live text, and what Gradio leaves out.
() => {
  const chat = document.querySelector("#chat");
  const main = document.querySelector("#main");
  if (!chat || !main) return;

  // Names for a screen reader; a question arrives as character references, see texts.verbatim.
  const name = () => {
    for (const image of chat.querySelectorAll("button img:not([alt]), button img[alt='']")) {
      image.alt = "Image in the conversation; press to enlarge";
    }
    for (const bubble of chat.querySelectorAll("[data-testid=user]")) {
      const label = `You: ${bubble.innerText.trim() || "an image"}`;
      if (bubble.getAttribute("aria-label") !== label) bubble.setAttribute("aria-label", label);
    }
    // Without an answer there is nothing to edit or to compare.
    const none = !chat.querySelector("[data-testid=bot]");
    for (const button of document.querySelectorAll("#edit, #compare, #needs")) {
      if (button.disabled !== none) button.disabled = none;
    }
  };
  new MutationObserver(name).observe(chat, { childList: true, subtree: true, attributes: true, attributeFilter: ["aria-label"] });
  name();

  // The status line is repeated next to the buttons that stand far below it.
  const status = document.querySelector("#status");
  const echo = () => {
    for (const place of document.querySelectorAll(".rc-echo")) place.textContent = status.innerText.trim();
  };
  if (status) new MutationObserver(echo).observe(status, { childList: true, subtree: true, characterData: true });

  // A copied question is what was typed.
  chat.addEventListener(
    "click",
    (event) => {
      const row = event.target.closest("button[aria-label^=Copy]")?.closest(".message-buttons")?.previousElementSibling;
      if (!row?.matches(".user-row")) return;
      event.stopImmediatePropagation();
      const text = [...row.querySelectorAll("[data-testid=user]")].map((bubble) => bubble.innerText).join("\n");
      navigator.clipboard?.writeText(text.trim());
    },
    true,
  );

  // The answer so far: plain text in the last bubble, until the finished answer takes its place.
  window.addEventListener("recap-live", ({ detail: live }) => {
    const bubbles = chat.querySelectorAll("[data-testid=bot]");
    const bubble = bubbles[bubbles.length - 1];
    let shown = chat.querySelector(".rc-live");
    if (!live || !bubble || live.beside) return shown?.remove();
    if (shown?.parentElement !== bubble) {
      shown?.remove();
      shown = Object.assign(document.createElement("div"), { className: "rc-live" });
      shown.setAttribute("aria-hidden", "true"); // the chat's log speaks the finished answer
      bubble.append(shown);
    }
    shown.textContent = live.text;
    const log = bubble.closest("[role=log]");
    if (log && log.scrollHeight - log.scrollTop - log.clientHeight < 120) log.scrollTop = log.scrollHeight;
  });

  // What stands above the two columns; they fill the rest of the window (page.css).
  const measure = () => {
    const above = Math.round(main.getBoundingClientRect().top + window.scrollY);
    document.documentElement.style.setProperty("--above", `${above}px`);
  };
  new ResizeObserver(measure).observe(document.querySelector("#head"));
  const picker = document.querySelector("#examples");
  if (picker) new ResizeObserver(measure).observe(picker);
  window.addEventListener("resize", measure);
  measure();

  // A question that does not fit into the context gets a warning before it is sent.
  document.addEventListener("input", (event) => {
    if (!event.target.matches?.("#box textarea")) return;
    const left = document.querySelector(".rc-context");
    if (!left) return;
    left.dataset.text ??= left.textContent;
    const tokens = Math.ceil(event.target.value.length / 3.5);
    const full = tokens > 0.9 * Number(left.dataset.left);
    left.textContent = full ? `This question has about ${tokens} tokens, and ${left.dataset.left} are left: shorten it, or start a new chat.` : left.dataset.text;
    left.classList.toggle("rc-full", full);
  });
}

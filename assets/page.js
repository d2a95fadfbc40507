// Runs once when the page has loaded: names what Gradio leaves nameless for a screen reader.
() => {
  const chat = document.querySelector("#chat");
  if (!chat) return;
  const name = () => {
    for (const image of chat.querySelectorAll("button img:not([alt]), button img[alt='']")) {
      image.alt = "Image in the conversation; press to enlarge";
    }
  };
  new MutationObserver(name).observe(chat, { childList: true, subtree: true });
  name();
}

// Tells the page the newest step while a decoder runs: the value is one JSON object, or empty.

watch("value", () => {
  const live = props.value ? JSON.parse(props.value) : null;
  window.dispatchEvent(new CustomEvent("recap-live", { detail: live }));
});

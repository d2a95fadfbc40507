// A picture from the camera: a dialog with what it sees; the picture is uploaded like any other file.

const host = element.querySelector(".rc-camera");
const MOST = 1600; // px, longest side
let stream = null;

const make = (tag, attributes, ...children) => {
  const node = Object.assign(document.createElement(tag), attributes);
  node.append(...children);
  return node;
};
const video = make("video", { muted: true, playsInline: true, autoplay: true });
const message = make("p", { className: "rc-camera-message" });
message.setAttribute("role", "status");
const shoot = make("button", { type: "button", className: "rt-button rt-pill", onclick: take }, "Take the picture");
const leave = make("button", { type: "button", className: "rt-button rt-pill", onclick: () => dialog.close() }, "Cancel");
const dialog = make("dialog", { className: "rc-dialog rc-page", onclose: release }, video, message, make("div", { className: "rt-controls" }, shoot, leave));
dialog.setAttribute("aria-label", "Camera");
const start = make("button", { type: "button", className: "rc-chip", onclick: open }, "Camera");
start.title = "Take a picture with this device's camera";
host.replaceChildren(start);
document.body.append(dialog);

async function open() {
  shoot.hidden = true;
  message.textContent = "Waiting for the camera…";
  dialog.showModal();
  try {
    if (!navigator.mediaDevices) throw new Error("this page has no access to one (it needs https)");
    stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    video.srcObject = stream;
    await video.play();
    message.textContent = "";
    shoot.hidden = false;
  } catch (error) {
    message.textContent = `No camera can be used: ${error.message || error.name}.`;
  }
}

async function take() {
  const scale = Math.min(1, MOST / Math.max(video.videoWidth, video.videoHeight));
  const canvas = make("canvas", { width: Math.round(video.videoWidth * scale), height: Math.round(video.videoHeight * scale) });
  canvas.getContext("2d").drawImage(video, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  try {
    const file = await upload(new File([blob], "camera.png", { type: "image/png" }));
    dialog.close();
    trigger("photo", { path: file.path });
  } catch (error) {
    message.textContent = `The picture could not be sent: ${error.message || error}.`;
  }
}

function release() {
  for (const track of stream ? stream.getTracks() : []) track.stop();
  stream = video.srcObject = null;
}

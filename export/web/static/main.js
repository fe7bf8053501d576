// The page: classifies images from drop, file, paste, camera or examples.

import { Camera } from "./camera.js";
import { openModel } from "./model.js";
import { drawAttention } from "./overlay.js";
import { decodeImage, preprocess } from "./pixels.js";

const TOP = 5;
const MAX_CANVAS_SIDE = 1120; // twice the size in CSS pixels, for high-density screens
const element = (id) => document.getElementById(id);

const camera = new Camera(element, () => Boolean(shown));

let bytes, model, shown;
let work = Promise.resolve(); // one job at a time

/** Runs a job after the previous ones; errors are shown on the page. */
function queue(job) {
  work = work.then(job).catch((error) => {
    element("error").textContent = error.message || String(error);
    element("error").hidden = false;
    setStatus("");
  });
}

function setStatus(text) {
  element("status").textContent = text;
}

async function show(blob) {
  element("error").hidden = true;
  setStatus("Classifying …");
  const canvas = await decodeImage(blob);
  shown = canvas;
  await classify(canvas);
}

async function classify(canvas) {
  const { pixels, region } = preprocess(canvas, model.preprocessing);
  await new Promise((resolve) => setTimeout(resolve)); // shows the status before the model blocks the page
  const start = performance.now();
  const probabilities = await model.classify(pixels);
  const milliseconds = performance.now() - start;
  const map = await model.attention(pixels);
  draw(canvas, map, region);
  const best = [...probabilities.keys()].sort((a, b) => probabilities[b] - probabilities[a]).slice(0, TOP);
  listPredictions(best, probabilities);
  element("latency").textContent = `${milliseconds.toFixed(milliseconds < 10 ? 1 : 0)} ms`;
  element("details").hidden = false;
  setStatus(`${model.classNames[best[0]]}, ${percent(probabilities[best[0]])}`);
}

function listPredictions(best, probabilities) {
  element("predictions").replaceChildren(
    ...best.map((index) => {
      const item = document.createElement("li");
      item.innerHTML = '<span class="name"></span><span class="probability"></span><span class="bar" aria-hidden="true"><i></i></span>';
      item.querySelector(".name").textContent = model.classNames[index];
      item.querySelector(".probability").textContent = percent(probabilities[index]);
      item.querySelector("i").style.width = `${100 * probabilities[index]}%`;
      return item;
    }),
  );
}

function percent(probability) {
  return `${(100 * probability).toFixed(1)}\u00a0%`;
}

function draw(canvas, map, region) {
  const shrink = Math.min(1, MAX_CANVAS_SIDE / Math.max(canvas.width, canvas.height));
  // Small images are enlarged by an integer factor, so that all pixels have the same size.
  const grow = Math.max(1, Math.floor(320 / Math.max(canvas.width, canvas.height)));
  for (const id of ["image", "overlay"]) {
    element(id).width = Math.max(1, Math.round(canvas.width * shrink * grow));
    element(id).height = Math.max(1, Math.round(canvas.height * shrink * grow));
  }
  const { width, height } = element("image");
  const context = element("image").getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(canvas, 0, 0, width, height);
  element("overlay").hidden = !map;
  if (map) {
    const [across, down] = [width / canvas.width, height / canvas.height];
    const [x, y, w, h] = [region.x * across, region.y * down, region.width * across, region.height * down];
    drawAttention(element("overlay"), map, model.attentionGrid, { x, y, width: w, height: h });
  }
  element("viewer").hidden = false;
  element("hint").hidden = true;
  element("drop").classList.add("full");
}

function megabytes() {
  return `${(bytes.length / 1e6).toFixed(1)} MB`;
}

async function open(accelerator) {
  setStatus(`Loading the model (${megabytes()}) …`);
  try {
    model = await openModel(bytes, accelerator);
    element("note").hidden = true;
  } catch (error) {
    if (accelerator === "wasm") throw error;
    element("note").textContent = `${error.message} The model runs on the CPU.`;
    element("note").hidden = false;
    element("accelerator").value = "wasm";
    model = await openModel(bytes, "wasm");
  }
  setStatus("Ready. Choose an image.");
}

async function fetchFile(name) {
  // Asks the server whether the file has changed: browsers would take yesterday's model from their cache.
  const response = await fetch(new URL(name, import.meta.url), { cache: "no-cache" });
  if (!response.ok) throw new Error(`${name} is missing (${response.status}). Copy the whole folder of this page.`);
  return response;
}

function listen() {
  const take = (file) => {
    if (file) queue(() => (camera.stop(), show(file)));
  };
  element("file").addEventListener("change", ({ target }) => {
    take(target.files[0]);
    target.value = ""; // the same file may be chosen again
  });
  for (const type of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(type, (event) => {
      event.preventDefault(); // on the whole page: otherwise the browser opens the image
      element("drop").classList.toggle("over", type === "dragover");
      if (type === "drop") take(event.dataTransfer.files[0]);
    });
  }
  document.addEventListener("paste", (event) => take(event.clipboardData.files[0]));
  element("camera").addEventListener("click", () => queue(() => (camera.stream ? camera.stop() : camera.start())));
  element("capture").addEventListener("click", () => queue(async () => show(await camera.capture())));
  element("accelerator").addEventListener("change", ({ target }) =>
    queue(async () => {
      await open(target.value);
      if (shown) await classify(shown);
    }),
  );
  const setOpacity = () => (element("overlay").style.opacity = element("opacity").value / 100);
  element("opacity").addEventListener("input", setOpacity);
  setOpacity();
}

function offerExamples() {
  const buttons = [...element("examples").children];
  for (const button of buttons) {
    const { src } = button.firstElementChild;
    button.addEventListener("click", () => queue(async () => (camera.stop(), show(await (await fetchFile(src)).blob()))));
  }
  element("examples").hidden = !buttons.length;
}

queue(async () => {
  bytes = new Uint8Array(await (await fetchFile("model.tflite")).arrayBuffer());
  element("model").textContent = megabytes();
  element("runtime").textContent = `LiteRT.js ${(await (await fetchFile("litert/core/package.json")).json()).version}`;
  element("cpu").hidden = Boolean(await navigator.gpu?.requestAdapter());
  element("accelerator").hidden = !element("cpu").hidden;
  await open("wasm");
  element("attention-controls").hidden = !model.attentionGrid;
  offerExamples();
  listen();
  element("file").disabled = element("camera").disabled = false;
});

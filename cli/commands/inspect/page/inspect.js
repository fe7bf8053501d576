// Shows the attention of a selected token by layer and head, and the similarity of position embeddings.
// h w patch grid, N tokens (the prefix first, then the patches), K heads.

const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]]; // at 0, 1/4, 1/2, 3/4, 1
const element = (id) => document.getElementById(id);
const data = JSON.parse(element("data").textContent);
const [h, w] = data.grid;
const numPrefix = data.prefix.length;
const N = numPrefix + h * w;
const K = data.heads;

const state = { image: 0, layer: data.layers.length - 1, head: -1, token: numPrefix ? 0 : Math.floor(h / 2) * w + Math.floor(w / 2) };
const decoded = new Map(); // attention of the images shown so far
const positions = data.positions && bytes(data.positions.levels); // (h*w, h*w)

function bytes(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/** Attention (N) of the selected token in the selected head, or the mean over heads. */
function attention() {
  if (!decoded.has(state.image)) {
    const { levels, steps } = data.images[state.image];
    decoded.set(state.image, { levels: bytes(levels), steps: new DataView(bytes(steps).buffer) });
  }
  const { levels, steps } = decoded.get(state.image);
  const heads = state.head < 0 ? [...Array(K).keys()] : [state.head];
  const weights = new Array(N).fill(0);
  for (const head of heads) {
    const row = (state.layer * K + head) * N + state.token;
    const step = steps.getFloat32(4 * row, true) / heads.length;
    for (let i = 0; i < N; i++) weights[i] += levels[row * N + i] * step;
  }
  return weights;
}

const percent = (fraction) => `${(100 * fraction).toFixed(fraction < 0.1 ? 2 : 1)}\u00a0%`;
const patchName = (patch) => `row ${Math.floor(patch / w) + 1}, column ${(patch % w) + 1}`;
const withArticle = (name) => (/\d$/.test(name) ? name : `the ${name}`); // but "register 1"
const tokenName = (token) => (token < numPrefix ? withArticle(data.prefix[token]) : `the patch in ${patchName(token - numPrefix)}`);
const headName = () => (state.head < 0 ? "mean over heads" : `head ${state.head + 1}`);

/** Fills an element with h rows of w cells and returns the cells. */
function grid(parent, roles) {
  return Array.from({ length: h }, () => {
    const row = document.createElement("div");
    if (roles) row.setAttribute("role", "row");
    const cells = Array.from({ length: w }, () => document.createElement("div"));
    if (roles) cells.forEach((cell) => cell.setAttribute("role", "gridcell"));
    row.append(...cells);
    parent.append(row);
    return cells;
  }).flat();
}

const patches = grid(element("patches"), true);
const similarityCells = grid(element("similarity"), false);

function showAttention() {
  const weights = attention();
  const patchWeights = weights.slice(numPrefix);
  const max = patchWeights.reduce((best, weight, i) => (weight > patchWeights[best] ? i : best), 0);
  patches.forEach((cell, i) => {
    const selected = state.token === numPrefix + i;
    cell.style.setProperty("--weight", patchWeights[max] ? patchWeights[i] / patchWeights[max] : 0);
    cell.setAttribute("aria-label", `${patchName(i)}: ${percent(patchWeights[i])}`);
    cell.setAttribute("aria-selected", selected);
    cell.classList.toggle("selected", selected);
  });
  const prefix = data.prefix.map((name, i) => `, ${percent(weights[i])} to ${withArticle(name)}`).join("");
  element("max-attention").textContent = percent(patchWeights[max]);
  element("status").textContent =
    `Attention of ${tokenName(state.token)}, layer ${data.layers[state.layer]}, ${headName()}: ` +
    `largest to ${patchName(max)}, ${percent(patchWeights[max])}${prefix}.`;
  element("layer-number").textContent = `${data.layers[state.layer]} of ${data.depth}`;
  element("layer").setAttribute("aria-valuetext", `layer ${data.layers[state.layer]} of ${data.depth}`);
  element("prefix").querySelectorAll("button").forEach((button, i) => button.setAttribute("aria-pressed", state.token === i));
}

/** Viridis color of a value in [0, 1]. */
function color(value) {
  const index = Math.min(value * (VIRIDIS.length - 1), VIRIDIS.length - 1 - 1e-6);
  const [low, high] = [VIRIDIS[Math.floor(index)], VIRIDIS[Math.floor(index) + 1]];
  return `rgb(${low.map((channel, i) => Math.round(channel + (high[i] - channel) * (index - Math.floor(index))))})`;
}

function showPositions(patch) {
  if (!positions) return;
  const { step, lowest } = data.positions;
  similarityCells.forEach((cell, i) => {
    const similarity = positions[patch * h * w + i] * step + lowest;
    cell.style.background = color((similarity - lowest) / (1 - lowest));
    cell.title = similarity.toFixed(3);
    cell.classList.toggle("own", i === patch);
  });
  element("similarity").setAttribute("aria-label", `Similarity of the position embedding in ${patchName(patch)} to all others`);
}

function showImage() {
  const { name, url } = data.images[state.image];
  element("image").src = url;
  element("image").alt = name;
  element("thumbnails").querySelectorAll("button").forEach((button, i) => button.setAttribute("aria-pressed", state.image === i));
  showAttention();
}

function select(patch) {
  state.token = numPrefix + patch;
  makeFocusable(patch);
  showAttention();
  showPositions(patch);
}

/** Makes one patch reachable by Tab; arrow keys move on from there. */
function makeFocusable(patch) {
  patches.forEach((cell, i) => (cell.tabIndex = i === patch ? 0 : -1));
}

function onKey(event, patch) {
  const [row, column] = [Math.floor(patch / w), patch % w];
  const steps = { ArrowUp: row && -w, ArrowDown: row < h - 1 && w, ArrowLeft: column && -1, ArrowRight: column < w - 1 && 1 };
  if (event.key === "Enter" || event.key === " ") select(patch);
  else if (event.key in steps) patches[patch + Number(steps[event.key])].focus();
  else return;
  event.preventDefault(); // prevents scrolling
}

function button(parent, content, onClick) {
  const created = document.createElement("button");
  created.type = "button";
  created.append(content);
  created.addEventListener("click", onClick);
  parent.append(created);
}

patches.forEach((cell, i) => {
  cell.addEventListener("click", () => select(i));
  cell.addEventListener("pointerenter", () => showPositions(i));
  cell.addEventListener("focus", () => (makeFocusable(i), showPositions(i)));
  cell.addEventListener("keydown", (event) => onKey(event, i));
});
data.images.forEach(({ name, url }, i) => {
  const thumbnail = document.createElement("img");
  thumbnail.src = url;
  thumbnail.alt = name;
  button(element("thumbnails"), thumbnail, () => ((state.image = i), showImage()));
});
data.prefix.forEach((name, i) => button(element("prefix"), `Attention of ${withArticle(name)}`, () => ((state.token = i), showAttention())));
element("prefix").hidden = !numPrefix;
element("head").append(new Option("mean", -1), ...Array.from({ length: K }, (_, i) => new Option(String(i + 1), i)));
element("head").addEventListener("change", ({ target }) => ((state.head = Number(target.value)), showAttention()));
element("layer").max = data.layers.length - 1;
element("layer").value = state.layer;
element("layer").addEventListener("input", ({ target }) => ((state.layer = Number(target.value)), showAttention()));
element("positions").hidden = !positions;
if (positions) element("lowest").textContent = data.positions.lowest.toFixed(2);
makeFocusable(Math.max(0, state.token - numPrefix));
showImage();
showPositions(Math.max(0, state.token - numPrefix));

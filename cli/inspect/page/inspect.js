// What each patch attends to, by layer and head, and which positions are like its own.
// h w patch grid, N tokens (those before the patches first), K heads.

const ALIKE = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]]; // viridis, every quarter
const element = (id) => document.getElementById(id);
const data = JSON.parse(element("data").textContent);
const [h, w] = data.grid;
const before = data.prefix.length;
const N = before + h * w;
const K = data.heads;

const state = { image: 0, layer: data.layers.length - 1, head: -1, token: before ? 0 : Math.floor(h / 2) * w + Math.floor(w / 2) };
const decoded = new Map(); // of the images that were looked at
const positions = data.positions && bytes(data.positions.levels); // (h*w, h*w)

function bytes(letters) {
  return Uint8Array.from(atob(letters), (letter) => letter.charCodeAt(0));
}

/** Attention (N) from the chosen token: of the chosen head, or the mean of all. */
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

const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 2 : 1)}\u00a0%`;
const place = (patch) => `row ${Math.floor(patch / w) + 1}, column ${(patch % w) + 1}`;
const tokenName = (token) => (token < before ? `the ${data.prefix[token]}` : place(token - before));
const headName = () => (state.head < 0 ? "mean of the heads" : `head ${state.head + 1}`);

/** Fills an element with h rows of w cells; returns the cells. */
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
const alike = grid(element("similarity"), false);

function showAttention() {
  const weights = attention();
  const shares = weights.slice(before);
  const most = shares.reduce((best, share, i) => (share > shares[best] ? i : best), 0);
  patches.forEach((cell, i) => {
    const chosen = state.token === before + i;
    cell.style.setProperty("--share", shares[most] ? shares[i] / shares[most] : 0);
    cell.setAttribute("aria-label", `${place(i)}: ${percent(shares[i])}`);
    cell.setAttribute("aria-selected", chosen);
    cell.classList.toggle("chosen", chosen);
  });
  const others = data.prefix.map((name, i) => `, ${percent(weights[i])} to the ${name}`).join("");
  element("most").textContent = percent(shares[most]);
  element("said").textContent =
    `From ${tokenName(state.token)}, layer ${data.layers[state.layer]}, ${headName()}: ` +
    `most to ${place(most)}, ${percent(shares[most])}${others}.`;
  element("layer-name").textContent = `${data.layers[state.layer]} of ${data.depth}`;
  element("layer").setAttribute("aria-valuetext", `layer ${data.layers[state.layer]} of ${data.depth}`);
  element("tokens").querySelectorAll("button").forEach((button, i) => button.setAttribute("aria-pressed", state.token === i));
}

function color(share) {
  const at = Math.min(share * (ALIKE.length - 1), ALIKE.length - 1 - 1e-6);
  const [low, high] = [ALIKE[Math.floor(at)], ALIKE[Math.floor(at) + 1]];
  return `rgb(${low.map((value, i) => Math.round(value + (high[i] - value) * (at - Math.floor(at))))})`;
}

function showPositions(patch) {
  if (!positions) return;
  const { step, lowest } = data.positions;
  alike.forEach((cell, i) => {
    const similarity = positions[patch * h * w + i] * step + lowest;
    cell.style.background = color((similarity - lowest) / (1 - lowest));
    cell.title = similarity.toFixed(3);
    cell.classList.toggle("own", i === patch);
  });
  element("similarity").setAttribute("aria-label", `Similarity of the position ${place(patch)} to all others`);
}

function showImage() {
  const { name, image } = data.images[state.image];
  element("image").src = image;
  element("image").alt = name;
  element("choices").querySelectorAll("button").forEach((button, i) => button.setAttribute("aria-pressed", state.image === i));
  showAttention();
}

function choose(patch) {
  state.token = before + patch;
  focusable(patch);
  showAttention();
  showPositions(patch);
}

/** One patch at a time is reached by Tab; arrow keys go on from it. */
function focusable(patch) {
  patches.forEach((cell, i) => (cell.tabIndex = i === patch ? 0 : -1));
}

function onKey(event, patch) {
  const [row, column] = [Math.floor(patch / w), patch % w];
  const steps = { ArrowUp: row && -w, ArrowDown: row < h - 1 && w, ArrowLeft: column && -1, ArrowRight: column < w - 1 && 1 };
  if (event.key === "Enter" || event.key === " ") choose(patch);
  else if (event.key in steps) patches[patch + Number(steps[event.key])].focus();
  else return;
  event.preventDefault(); // the page would scroll
}

function button(parent, content, onClick) {
  const made = document.createElement("button");
  made.type = "button";
  made.append(content);
  made.addEventListener("click", onClick);
  parent.append(made);
}

patches.forEach((cell, i) => {
  cell.addEventListener("click", () => choose(i));
  cell.addEventListener("pointerenter", () => showPositions(i));
  cell.addEventListener("focus", () => (focusable(i), showPositions(i)));
  cell.addEventListener("keydown", (event) => onKey(event, i));
});
data.images.forEach(({ name, image }, i) => {
  const thumbnail = document.createElement("img");
  thumbnail.src = image;
  thumbnail.alt = name;
  button(element("choices"), thumbnail, () => ((state.image = i), showImage()));
});
data.prefix.forEach((name, i) => button(element("tokens"), `From the ${name}`, () => ((state.token = i), showAttention())));
element("tokens").hidden = !before;
element("head").append(new Option("mean of all", -1), ...Array.from({ length: K }, (_, i) => new Option(String(i + 1), i)));
element("head").addEventListener("change", ({ target }) => ((state.head = Number(target.value)), showAttention()));
element("layer").max = data.layers.length - 1;
element("layer").value = state.layer;
element("layer").addEventListener("input", ({ target }) => ((state.layer = Number(target.value)), showAttention()));
element("positions").hidden = !positions;
if (positions) element("lowest").textContent = data.positions.lowest.toFixed(2);
focusable(Math.max(0, state.token - before));
showImage();
showPositions(Math.max(0, state.token - before));

// Shows the images behind a selected number: a thumbnail where there is one, and the name of each file.

const data = JSON.parse(document.getElementById("data").textContent);
const gallery = document.getElementById("gallery");
const status = document.getElementById("status");
const buttons = document.querySelectorAll("button[data-images]");

function figure([file, label, prediction, thumbnail]) {
  const created = document.createElement("figure");
  created.dataset.file = file;
  if (thumbnail) {
    const image = document.createElement("img");
    image.src = thumbnail;
    image.alt = "";
    created.append(image);
  }
  const caption = document.createElement("figcaption");
  caption.textContent = `${file}: ${prediction}, true: ${label || "no label"}`;
  created.append(caption);
  return created;
}

function show(button) {
  const rows = data.lists[button.dataset.images];
  const known = rows.filter((row) => row in data.images);
  buttons.forEach((other) => other.setAttribute("aria-pressed", other === button));
  gallery.replaceChildren(...known.map((row) => figure(data.images[row])));
  status.textContent = button.ariaLabel + (known.length < rows.length ? `; the files of ${rows.length - known.length} are in the table only` : "");
}

buttons.forEach((button) => {
  button.setAttribute("aria-pressed", false);
  button.addEventListener("click", () => show(button));
});

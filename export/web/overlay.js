// The attention drawn over the image.

// Matplotlib's inferno, every quarter; the legend in demo.css has the same.
const COLORS = [[0, 0, 4], [87, 16, 110], [188, 55, 84], [249, 142, 9], [252, 255, 164]];
const PLACES = [["upper left", "upper middle", "upper right"], ["left", "middle", "right"], ["lower left", "lower middle", "lower right"]];

/** Draws a map (h, w) over `region` of a canvas of the image's size, from its least to its most. Says where most is. */
export function drawAttention(canvas, map, [h, w], region) {
  const least = map.reduce((a, b) => Math.min(a, b));
  const range = map.reduce((a, b) => Math.max(a, b)) - least || 1;
  const image = new ImageData(w, h);
  let most = 0;
  map.forEach((value, i) => {
    const share = (value - least) / range;
    image.data.set([...color(share), 160 + 95 * share], 4 * i); // the image stays to be seen under what is dark
    if (value > map[most]) most = i;
  });
  const small = document.createElement("canvas");
  small.width = w;
  small.height = h;
  small.getContext("2d").putImageData(image, 0, 0);
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = `rgb(${COLORS[0]})`; // what the model does not see
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingQuality = "high";
  context.save();
  context.beginPath();
  context.rect(region.x, region.y, region.width, region.height);
  context.clip();
  context.drawImage(small, region.x, region.y, region.width, region.height);
  context.restore();
  const place = PLACES[Math.floor((3 * Math.floor(most / w)) / h)][Math.floor((3 * (most % w)) / w)];
  canvas.setAttribute("aria-label", `Attention of the model, most of it at the ${place} of what it sees`);
}

function color(share) {
  const at = Math.min(share * (COLORS.length - 1), COLORS.length - 1 - 1e-6);
  const [low, high] = [COLORS[Math.floor(at)], COLORS[Math.floor(at) + 1]];
  return low.map((value, i) => value + (high[i] - value) * (at - Math.floor(at)));
}

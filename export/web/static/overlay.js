// Draws the attention map over the image.

// Matplotlib's inferno at every quarter; the legend in style.css has the same colors.
const COLORS = [[0, 0, 4], [87, 16, 110], [188, 55, 84], [249, 142, 9], [252, 255, 164]];
const REGIONS = [["upper left", "upper middle", "upper right"], ["left", "middle", "right"], ["lower left", "lower middle", "lower right"]];

/** Draws a map (h, w) over `region` of a canvas of the image's size, scaled from minimum to maximum. */
export function drawAttention(canvas, map, [h, w], region) {
  const minimum = map.reduce((a, b) => Math.min(a, b));
  const range = map.reduce((a, b) => Math.max(a, b)) - minimum || 1;
  const image = new ImageData(w, h);
  let highest = 0;
  map.forEach((value, i) => {
    const fraction = (value - minimum) / range;
    image.data.set([...color(fraction), 160 + 95 * fraction], 4 * i); // dark parts are more transparent
    if (value > map[highest]) highest = i;
  });
  const small = document.createElement("canvas");
  small.width = w;
  small.height = h;
  small.getContext("2d").putImageData(image, 0, 0);
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = `rgb(${COLORS[0]})`; // outside the crop that the model sees
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingQuality = "high";
  context.save();
  context.beginPath();
  context.rect(region.x, region.y, region.width, region.height);
  context.clip();
  context.drawImage(small, region.x, region.y, region.width, region.height);
  context.restore();
  const place = REGIONS[Math.floor((3 * Math.floor(highest / w)) / h)][Math.floor((3 * (highest % w)) / w)];
  canvas.setAttribute("aria-label", `Attention map, highest at the ${place} of the crop that the model sees`);
}

function color(fraction) {
  const at = Math.min(fraction * (COLORS.length - 1), COLORS.length - 1 - 1e-6);
  const [low, high] = [COLORS[Math.floor(at)], COLORS[Math.floor(at) + 1]];
  return low.map((value, i) => value + (high[i] - value) * (at - Math.floor(at)));
}

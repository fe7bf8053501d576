// Draws the attention map over the image.

// As keras_vit.inspect.figures.overlay: transparent at the minimum, mostly orange at the maximum. style.css has the same color in its legend.
const COLOR = [255, 115, 26];
const HIGHEST_ALPHA = 0.7 * 255;
const REGIONS = [["upper left", "upper middle", "upper right"], ["left", "middle", "right"], ["lower left", "lower middle", "lower right"]];

/** Draws a map (h, w) over `region` of a canvas of the image's size, scaled from minimum to maximum. */
export function drawAttention(canvas, map, [h, w], region) {
  const minimum = map.reduce((a, b) => Math.min(a, b));
  const range = map.reduce((a, b) => Math.max(a, b)) - minimum || 1;
  const image = new ImageData(w, h);
  let highest = 0;
  map.forEach((value, i) => {
    const fraction = (value - minimum) / range;
    image.data.set([...COLOR, HIGHEST_ALPHA * fraction], 4 * i);
    if (value > map[highest]) highest = i;
  });
  const small = document.createElement("canvas");
  small.width = w;
  small.height = h;
  small.getContext("2d").putImageData(image, 0, 0);
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingQuality = "high";
  context.save();
  context.beginPath();
  context.rect(region.x, region.y, region.width, region.height);
  context.clip();
  context.drawImage(small, region.x, region.y, region.width, region.height);
  context.restore();
  if (region.width < canvas.width || region.height < canvas.height) {
    context.strokeStyle = `rgb(${COLOR})`; // what is outside the crop is not seen by the model
    context.lineWidth = 2;
    context.strokeRect(region.x + 1, region.y + 1, region.width - 2, region.height - 2);
  }
  const place = REGIONS[Math.floor((3 * Math.floor(highest / w)) / h)][Math.floor((3 * (highest % w)) / w)];
  canvas.setAttribute("aria-label", `Attention map, highest at the ${place} of the crop that the model sees`);
}

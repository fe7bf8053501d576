// Preprocesses images of any size as preprocessing.json specifies. Canvas scaling differs between browsers; this resizes
// as TensorFlow does, so that the results equal those of Keras.

const KERNELS = {
  bilinear: { radius: 1, weight: (x) => 1 - x },
  bicubic: { radius: 2, weight: (x) => (x < 1 ? (1.5 * x - 2.5) * x * x + 1 : ((-0.5 * x + 2.5) * x - 4) * x + 2) },
  lanczos3: { radius: 3, weight: (x) => lanczos(x, 3) },
  lanczos5: { radius: 5, weight: (x) => lanczos(x, 5) },
};
// Larger canvases stay empty in Safari on phones.
const MAX_PIXELS = 16e6;

/** Decodes an image onto a canvas, rotated upright; throws an error for the user if that fails. */
export async function decodeImage(blob) {
  let bitmap;
  try {
    // Training ignores color profiles.
    bitmap = await createImageBitmap(blob, { colorSpaceConversion: "none" });
  } catch {
    throw new Error(`This browser cannot read ${blob.name || "this file"} as an image. Try a JPEG, PNG or WebP file.`);
  }
  const shrink = Math.min(1, Math.sqrt(MAX_PIXELS / (bitmap.width * bitmap.height)));
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.floor(bitmap.width * shrink));
  canvas.height = Math.max(1, Math.floor(bitmap.height * shrink));
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "white"; // behind transparent pixels, whose hidden colors a canvas does not keep
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  return canvas;
}

/**
 * Resizes and crops a canvas as `preprocessing` specifies.
 * Returns pixels, a Float32Array of (H, W, 3) in [0, 255], and region, the part of the image that the model sees, in
 * pixels of the image.
 */
export function preprocess(canvas, preprocessing) {
  const { width, height } = canvas;
  const [cropHeight, cropWidth] = preprocessing.image_size;
  let [tall, wide] = preprocessing.image_size.map((side) => Math.floor(side / preprocessing.crop_fraction + 1e-6));
  const area = preprocessing.resize === "shortest_area";
  if (preprocessing.resize !== "squash") {
    const scale = Math.max(tall / height, wide / width);
    const resized = (side) => (area ? halfEven(side * scale) : Math.floor(side * scale + 1e-6));
    tall = Math.max(tall, resized(height));
    wide = Math.max(wide, resized(width));
  }
  const offset = area ? Math.floor : halfEven;
  const top = offset((tall - cropHeight) / 2);
  const left = offset((wide - cropWidth) / 2);
  const rows = taps(height, tall, top, cropHeight, preprocessing);
  const columns = taps(width, wide, left, cropWidth, preprocessing);
  const source = canvas.getContext("2d").getImageData(0, 0, width, height).data; // (height, width, 4)
  const region = {
    x: (left * width) / wide,
    y: (top * height) / tall,
    width: (cropWidth * width) / wide,
    height: (cropHeight * height) / tall,
  };
  return { pixels: resample(source, width, rows, columns), region };
}

function resample(source, width, rows, columns) {
  const pixels = new Float32Array(rows.length * columns.length * 3);
  const line = new Float32Array(width * 4);
  let at = 0;
  for (const row of rows) {
    line.fill(0);
    row.weights.forEach((weight, i) => {
      const start = (row.first + i) * width * 4;
      for (let j = 0; j < line.length; j++) line[j] += weight * source[start + j];
    });
    for (const { first, weights } of columns) {
      for (let channel = 0; channel < 3; channel++) {
        let sum = 0;
        for (let i = 0; i < weights.length; i++) sum += weights[i] * line[(first + i) * 4 + channel];
        pixels[at++] = Math.min(255, Math.max(0, sum)); // bicubic resizing overshoots
      }
    }
  }
  return pixels; // (H, W, 3)
}

/** First input and weights for each of `count` outputs from `start` on, of a side resized from `from` to `to`. */
function taps(from, to, start, count, { resize, interpolation, antialias }) {
  if (resize === "shortest_area") return areaTaps(from, to, start, count);
  return Array.from({ length: count }, (_, i) => {
    const center = ((start + i + 0.5) * from) / to;
    if (interpolation === "nearest") return { first: Math.min(Math.floor(center), from - 1), weights: [1] };
    const { radius, weight } = KERNELS[interpolation];
    const stretch = antialias ? Math.max(1, from / to) : 1;
    const first = Math.max(0, Math.ceil(center - radius * stretch - 0.5));
    const last = Math.min(from - 1, Math.floor(center + radius * stretch - 0.5));
    const raw = [];
    for (let j = first; j <= last; j++) {
      const distance = Math.abs(j + 0.5 - center) / stretch;
      raw.push(distance < radius ? weight(distance) : 0);
    }
    const sum = raw.reduce((a, b) => a + b, 0);
    return { first, weights: raw.map((value) => value / sum) };
  });
}

/** The same for means of areas: weights are the fractions that pixels have of each output's interval. */
function areaTaps(from, to, start, count) {
  return Array.from({ length: count }, (_, i) => {
    const [low, high] = [((start + i) * from) / to, ((start + i + 1) * from) / to];
    const first = Math.floor(low);
    const last = Math.min(from, Math.ceil(high - 1e-9));
    const weights = [];
    for (let j = first; j < last; j++) weights.push(((Math.min(high, j + 1) - Math.max(low, j)) * to) / from);
    return { first, weights };
  });
}

function lanczos(x, radius) {
  if (x < 1e-3) return 1;
  return (radius * Math.sin(Math.PI * x) * Math.sin((Math.PI * x) / radius)) / (Math.PI * Math.PI * x * x);
}

/** Rounds as Python does: halves to the nearest even integer. */
function halfEven(value) {
  const floor = Math.floor(value);
  return value - floor === 0.5 ? floor + (floor % 2) : Math.round(value);
}

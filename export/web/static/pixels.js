// Preprocesses images of any size as preprocessing.json specifies. Canvas scaling differs between browsers; this equals
// keras_vit.Preprocessing to a fifth of a gray level.

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
 * Returns pixels, a Float32Array of (H, W, 3), or (H, W, 1) for a gray model, in [0, 255], and region, the part of the
 * image that the model sees, in pixels of the image.
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
  const { data } = canvas.getContext("2d").getImageData(0, 0, width, height); // (height, width, 4)
  const channels = preprocessing.mean.length;
  const source = channels === 1 ? gray(data) : data;
  const region = {
    x: (left * width) / wide,
    y: (top * height) / tall,
    width: (cropWidth * width) / wide,
    height: (cropHeight * height) / tall,
  };
  return { pixels: resample(source, width, channels, rows, columns, preprocessing.antialias), region };
}

/** Resizes the width, then the height. Pillow clips what bicubic and Lanczos overshoot after each, TensorFlow at the end. */
function resample(source, width, channels, rows, columns, clipsEach) {
  const stride = channels === 1 ? 1 : 4;
  const clipped = (value) => Math.min(255, Math.max(0, value));
  const lines = new Map(); // row of the image -> the same in the new width
  const resizedLine = (y) => {
    const line = new Float32Array(columns.length * channels);
    line.forEach((_, at) => {
      const { first, weights } = columns[Math.floor(at / channels)];
      let place = (y * width + first) * stride + (at % channels);
      let sum = 0;
      for (let i = 0; i < weights.length; i++, place += stride) sum += weights[i] * source[place];
      line[at] = clipsEach ? clipped(sum) : sum;
    });
    return line;
  };
  const pixels = new Float32Array(rows.length * columns.length * channels); // (H, W, C)
  rows.forEach(({ first, weights }, row) => {
    const start = row * columns.length * channels;
    weights.forEach((weight, i) => {
      if (!lines.has(first + i)) lines.set(first + i, resizedLine(first + i));
      lines.get(first + i).forEach((value, at) => (pixels[start + at] += weight * value));
    });
  });
  return pixels.map(clipped);
}

/** First input and weights for each of `count` outputs from `start` on, of a side resized from `from` to `to`. */
function taps(from, to, start, count, preprocessing) {
  const scale = from / to;
  const { radius, weight } = kernel(scale, preprocessing);
  return Array.from({ length: count }, (_, i) => {
    if (!radius) { // the nearest, in single precision as TensorFlow
      return { first: Math.floor(Math.fround(Math.fround(start + i + 0.5) * Math.fround(scale))), weights: [1] };
    }
    const center = (start + i + 0.5) * scale;
    const first = Math.max(0, Math.ceil(center - radius - 0.5));
    const last = Math.min(from - 1, Math.floor(center + radius - 0.5));
    const raw = Array.from({ length: last - first + 1 }, (_, j) => weight(Math.abs(first + j + 0.5 - center)));
    const sum = raw.reduce((a, b) => a + b, 0);
    return { first, weights: raw.map((value) => value / sum) };
  });
}

/** The weight of a pixel by its distance from the center, in pixels of the image, which is 0 from `radius` on. */
function kernel(scale, { resize, interpolation, antialias }) {
  if (resize === "shortest_area") { // how much of the pixel is within the interval of the output
    return { radius: (scale + 1) / 2, weight: (x) => Math.max(0, Math.min(1, scale, (scale + 1) / 2 - x)) };
  }
  const stretch = antialias ? Math.max(1, scale) : 1;
  const radius = { nearest: 0, bilinear: 1, bicubic: 2, lanczos3: 3, lanczos5: 5 }[interpolation];
  const weight = (x) => {
    if (x >= radius) return 0;
    if (interpolation === "bilinear") return 1 - x;
    if (interpolation !== "bicubic") return sinc(x) * sinc(x / radius);
    return x < 1 ? (1.5 * x - 2.5) * x * x + 1 : ((-0.5 * x + 2.5) * x - 4) * x + 2;
  };
  return { radius: radius * stretch, weight: (x) => weight(x / stretch) };
}

function sinc(x) {
  return x < 1e-6 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
}

/** RGBA to gray values as Pillow's mode "L". */
function gray(data) {
  const value = (_, i) => (19595 * data[4 * i] + 38470 * data[4 * i + 1] + 7471 * data[4 * i + 2] + 32768) >> 16;
  return Uint8Array.from({ length: data.length / 4 }, value);
}

/** Rounds as Python does: halves to the nearest even integer. */
function halfEven(value) {
  const floor = Math.floor(value);
  return value - floor === 0.5 ? floor + (floor % 2) : Math.round(value);
}

// Runs the .tflite file with LiteRT.js: pixels to probabilities and attention map.

import { getWebGpuDevice, loadAndCompile, loadLiteRt, supportsFeature, Tensor, unloadLiteRt } from "@litertjs/core";

// Largest difference of probabilities between GPU and CPU; more is an error, not rounding.
const GPU_TOLERANCE = 0.05;

/** Loads the runtime and compiles the bytes of a .tflite file. `accelerator` is "wasm" (the CPU) or "webgpu". */
export async function openModel(bytes, accelerator) {
  unloadLiteRt();
  // The runtime logs everything to stderr, which the console would show as errors.
  globalThis.Module = { printErr: (line) => (/\bERROR\b/.test(line) ? console.error(line) : console.debug(line)) };
  // Lets a model run partly on the GPU, with unsupported operations on the CPU.
  const jspi = accelerator === "webgpu" && (await supportsFeature("jspi"));
  await loadLiteRt(new URL("litert/core/wasm/", import.meta.url).href, { jspi });
  const model = new Model(bytes, await loadAndCompile(bytes, { accelerator: "wasm" }));
  const probe = Float32Array.from({ length: model.size }, (_, i) => (i * 7919) % 256);
  const expected = await model.classify(probe); // also a warm-up: the first call is slower
  if (accelerator === "wasm") return model;
  if (!getWebGpuDevice()) throw new Error("This browser has no GPU with WebGPU support.");
  const onGpu = new Model(bytes, await loadAndCompile(bytes, { accelerator }));
  const probabilities = await onGpu.classify(probe);
  // WebGPU reports no error for results that are wrong: full int8 files return noise.
  if (!probabilities.every((value, i) => Math.abs(value - expected[i]) < GPU_TOLERANCE)) {
    throw new Error("The GPU and the CPU return different results for this file.");
  }
  model.compiled.delete();
  return onGpu;
}

/** A compiled model with what its file says: `preprocessing`, `classNames`, and the grid (h, w) of its attention map. */
class Model {
  constructor(bytes, compiled) {
    this.compiled = compiled;
    const { classify, attention } = compiled.signatures;
    const texts = archived(bytes);
    if (!classify || !texts["preprocessing.json"]) {
      throw new Error("model.tflite is no classifier of keras_vit. Export it with keras-vit export, then replace the file.");
    }
    this.preprocessing = JSON.parse(texts["preprocessing.json"]);
    this.size = classify.getInputDetails()[0].shape.reduce((a, b) => a * b);
    this.attentionGrid = attention && [...attention.getOutputDetails()[0].shape].slice(1);
    const numClasses = classify.getOutputDetails()[0].shape[1];
    const names = texts["labels.txt"]?.split("\n");
    this.classNames = Array.from({ length: numClasses }, (_, i) => names?.[i] ?? `class ${i}`);
  }

  /** Pixels (H, W, C) in [0, 255] to probabilities (num_classes). */
  classify(pixels) {
    return this.run("classify", pixels);
  }

  /** Pixels (H, W, C) in [0, 255] to the attention (h, w) on each patch, or null without that signature. */
  attention(pixels) {
    return this.attentionGrid ? this.run("attention", pixels) : null;
  }

  async run(signature, pixels) {
    const [{ name, dtype, shape }] = this.compiled.signatures[signature].getInputDetails();
    // uint8 files take pixels as they are and return probabilities in steps of 1/256.
    const values = dtype === "uint8" ? Uint8Array.from(pixels, Math.round) : pixels;
    const tensor = new Tensor(values, shape);
    try {
      let [result] = Object.values(await this.compiled.run(signature, { [name]: tensor }));
      if (result.accelerator !== "wasm") result = await result.moveTo("wasm");
      const array = result.toTypedArray();
      const outputs = Float32Array.from(array, (value) => (array instanceof Uint8Array ? value / 256 : value));
      result.delete();
      return outputs;
    } finally {
      tensor.delete();
    }
  }
}

/** The texts by name in the uncompressed ZIP archive at the end of a .tflite file: its central directory lists them. */
function archived(bytes) {
  const texts = {};
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const end = bytes.length - 22; // of the record after the directory
  if (end < 0 || view.getUint32(end, true) !== 0x06054b50) return texts;
  const text = (start, length) => new TextDecoder().decode(bytes.subarray(start, start + length));
  let entry = view.getUint32(end + 16, true);
  for (let count = view.getUint16(end + 10, true); count > 0; count--) {
    const lengths = [28, 30, 32].map((place) => view.getUint16(entry + place, true)); // of name, extra and comment
    const header = view.getUint32(entry + 42, true);
    const start = header + 30 + view.getUint16(header + 26, true) + view.getUint16(header + 28, true);
    texts[text(entry + 46, lengths[0])] = text(start, view.getUint32(entry + 24, true));
    entry += 46 + lengths.reduce((a, b) => a + b);
  }
  return texts;
}

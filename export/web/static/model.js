// Runs the .tflite file with LiteRT.js: pixels to probabilities and attention map.

import { getWebGpuDevice, loadAndCompile, loadLiteRt, supportsFeature, Tensor, unloadLiteRt } from "@litertjs/core";

// Largest difference of probabilities between GPU and CPU; more is an error, not rounding.
const GPU_TOLERANCE = 0.05;

/** Loads the runtime and compiles the model. `accelerator` is "wasm" (the CPU) or "webgpu". */
export async function openModel(settings, bytes, accelerator) {
  unloadLiteRt();
  // The runtime logs everything to stderr, which the console would show as errors.
  globalThis.Module = { printErr: (line) => (/\bERROR\b/.test(line) ? console.error(line) : console.debug(line)) };
  // Lets a model run partly on the GPU, with unsupported operations on the CPU.
  const jspi = accelerator === "webgpu" && (await supportsFeature("jspi"));
  await loadLiteRt(new URL("litert/core/wasm/", import.meta.url).href, { jspi });
  const model = new Model(settings.signatures, await loadAndCompile(bytes, { accelerator: "wasm" }));
  const probe = Float32Array.from({ length: model.size }, (_, i) => (i * 7919) % 256);
  const expected = await model.classify(probe); // also a warm-up: the first call is slower
  if (accelerator === "wasm") return model;
  if (!getWebGpuDevice()) throw new Error("This browser has no GPU with WebGPU support.");
  const onGpu = new Model(settings.signatures, await loadAndCompile(bytes, { accelerator }));
  const probabilities = await onGpu.classify(probe);
  // WebGPU reports no error for results that are wrong: full int8 files return noise.
  if (!probabilities.every((value, i) => Math.abs(value - expected[i]) < GPU_TOLERANCE)) {
    throw new Error("The GPU and the CPU return different results for this file.");
  }
  model.compiled.delete();
  return onGpu;
}

class Model {
  constructor(signatures, compiled) {
    this.signatures = signatures;
    this.compiled = compiled;
    this.size = signatures.classify.input.shape.reduce((a, b) => a * b);
  }

  /** Pixels (H, W, 3) in [0, 255] to probabilities (num_classes). */
  classify(pixels) {
    return this.run("classify", pixels);
  }

  /** Pixels (H, W, 3) in [0, 255] to the attention (h, w) on each patch, or null without that signature. */
  attention(pixels) {
    return this.signatures.attention ? this.run("attention", pixels) : null;
  }

  async run(signature, pixels) {
    const { input, output } = this.signatures[signature];
    const tensor = new Tensor(quantized(pixels, input), input.shape);
    try {
      let result = (await this.compiled.run(signature, { [input.name]: tensor }))[output.name];
      if (result.accelerator !== "wasm") result = await result.moveTo("wasm");
      const values = dequantized(result.toTypedArray(), output);
      result.delete();
      return values;
    } finally {
      tensor.delete();
    }
  }
}

function quantized(values, { dtype, scale, zero_point }) {
  if (dtype === "float32") return values;
  const clamped = Uint8ClampedArray.from(values, (value) => Math.round(value / scale) + zero_point);
  return new Uint8Array(clamped.buffer); // LiteRT.js does not support clamped arrays
}

function dequantized(values, { dtype, scale, zero_point }) {
  return Float32Array.from(values, dtype === "float32" ? undefined : (value) => (value - zero_point) * scale);
}

/**
 * Weights as a `.safetensors` file: the length of a JSON header, the header, and the values.
 *
 * @module
 */

import { product } from "./tensors.js";

/**
 * @param {readonly { name: string, shape: readonly number[] }[]} parameters In the order `a0..aN`.
 * @param {Record<string, import("./litert.js").Numbers>} weights `a0..aN`.
 * @param {string} fingerprint Of the model file.
 * @returns {Blob}
 */
export function safetensors(parameters, weights, fingerprint) {
  /** @type {Record<string, object>} */
  const header = { __metadata__: { fingerprint } };
  let end = 0;
  const values = parameters.map(({ name, shape }, index) => {
    const numbers = Float32Array.from(weights[`a${index}`]);
    header[name] = { dtype: "F32", shape, data_offsets: [end, (end += numbers.byteLength)] };
    return numbers;
  });
  const text = new TextEncoder().encode(JSON.stringify(header));
  const padded = new Uint8Array(Math.ceil(text.length / 8) * 8).fill(32); // spaces, so that the values are aligned
  padded.set(text);
  const length = new DataView(new ArrayBuffer(8));
  length.setBigUint64(0, BigInt(padded.length), true);
  return new Blob([length, padded, ...values]);
}

/**
 * @param {Uint8Array<ArrayBuffer>} content Of a file.
 * @param {readonly { name: string, shape: readonly number[] }[]} parameters In the order `a0..aN`.
 * @param {string} fingerprint Of the model file.
 * @returns {Record<string, import("./litert.js").Numbers>} `a0..aN`.
 * @throws {Error} If it does not hold these weights, or those of another model file.
 */
export function weightsOf(content, parameters, fingerprint) {
  const { header, values } = parsed(content);
  const { __metadata__: metadata, ...tensors } = header;
  /** @type {Record<string, import("./litert.js").Numbers>} */
  const weights = {};
  for (const [index, { name, shape }] of parameters.entries()) {
    const found = tensors[name];
    if (found?.dtype !== "F32" || String(found.shape) !== String(shape)) {
      const instead = found ? `${found.dtype} [${found.shape}]` : `only ${Object.keys(tensors).slice(0, 5).join(", ")}`;
      throw new Error(`expected ${name} of F32 [${shape}], found ${instead}; choose weights of this model.`);
    }
    const own = values.slice(...found.data_offsets);
    if (own.byteLength !== 4 * product(shape)) throw new Error(`truncated within ${name}; save the weights again.`);
    weights[`a${index}`] = /** @type {Float32Array<ArrayBuffer>} */ (new Float32Array(own));
  }
  if ((metadata?.fingerprint ?? fingerprint) !== fingerprint) {
    throw new Error("contains weights of another version of this model; choose weights of this file.");
  }
  return weights;
}

/**
 * @param {Uint8Array<ArrayBuffer>} content
 * @returns {{ header: Record<string, any>, values: ArrayBuffer }}
 */
function parsed(content) {
  try {
    const length = Number(new DataView(content.buffer, content.byteOffset).getBigUint64(0, true));
    const header = JSON.parse(new TextDecoder().decode(content.subarray(8, 8 + length)));
    return { header, values: content.slice(8 + length).buffer };
  } catch (error) {
    throw new Error("not a .safetensors file; choose one that this page saved.", { cause: error });
  }
}

/**
 * Let the browser save a file.
 *
 * @param {Blob} content
 * @param {string} name
 */
export function save(content, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/**
 * Weights as a `.safetensors` file: the length of a JSON header, the header, and the values.
 *
 * @module
 */

/**
 * @param {readonly { name: string, shape: readonly number[] }[]} parameters In the order `a0..aN`.
 * @param {Record<string, import("./litert.js").Numbers>} weights `a0..aN`.
 * @returns {Blob}
 */
export function safetensors(parameters, weights) {
  /** @type {Record<string, { dtype: string, shape: readonly number[], data_offsets: [number, number] }>} */
  const header = {};
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

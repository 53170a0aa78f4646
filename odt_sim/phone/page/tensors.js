/**
 * Tensors as flat arrays with a shape.
 *
 * @module
 */

/** @typedef {import("./litert.js").Numbers} Numbers */
/** @typedef {import("./litert.js").Value} Value */

/** The types that LiteRT.js passes at the border of signatures. */
export const TYPES = { float32: Float32Array, int32: Int32Array, uint8: Uint8Array };

/**
 * @param {readonly number[]} sizes
 * @returns {number}
 */
export function product(sizes) {
  return sizes.reduce((count, size) => count * size, 1);
}

/**
 * Return chosen rows.
 *
 * @param {Value} value `[rows, ...]`.
 * @param {ArrayLike<number>} chosen
 * @returns {Value}
 */
export function gathered({ data, shape }, chosen) {
  const width = product(shape.slice(1));
  const type = /** @type {new (length: number) => Numbers} */ (data.constructor);
  const rows = new type(chosen.length * width);
  for (let i = 0; i < chosen.length; i += 1) {
    rows.set(data.subarray(chosen[i] * width, (chosen[i] + 1) * width), i * width);
  }
  return { data: rows, shape: [chosen.length, ...shape.slice(1)] };
}

/**
 * Return the further inputs of a step, each filled with its default.
 *
 * @param {readonly import("./litert.js").TensorInfo[]} inputs Of the step's signature.
 * @param {Readonly<Record<string, number>>} defaults By name.
 * @returns {Record<string, Value>}
 */
export function filled(inputs, defaults) {
  const further = inputs.filter(({ name }) => name in defaults);
  return Object.fromEntries(
    further.map(({ name, dtype, shape }) => [name, { data: new TYPES[dtype](product(shape)).fill(defaults[name]), shape }]),
  );
}

/**
 * Return a record with each value replaced by a function of it.
 *
 * @template From, To
 * @param {Readonly<Record<string, From>>} record
 * @param {(value: From, name: string) => To} change
 * @returns {Record<string, To>}
 */
export function mapped(record, change) {
  return Object.fromEntries(Object.entries(record).map(([name, value]) => [name, change(value, name)]));
}

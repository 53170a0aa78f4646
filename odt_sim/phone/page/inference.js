/**
 * Inference on any number of rows, and what figures need of it.
 *
 * @module
 */

import { gathered, mapped, product, TYPES } from "./tensors.js";

/** @typedef {import("./figures.js").Answered} Answered */
/** @typedef {import("./litert.js").Value} Value */

/**
 * What runs signatures: a model, or one that waits for its turn.
 *
 * @typedef {Pick<import("./litert.js").Model, "signatures" | "call">} Caller
 */

/**
 * Called before each batch.
 *
 * @callback Between
 * @param {number} done The batches done.
 * @param {number} of All of them.
 * @returns {Promise<void>} Rejects if the work is no longer wanted.
 */

/**
 * Return what figures are computed from: a model's answers for examples, and their losses where its file computes them.
 *
 * @param {Caller} model
 * @param {Readonly<Record<string, Value>>} examples Inputs and targets by their names in signatures, `[examples, ...]`.
 * @param {Between} [between]
 * @returns {Promise<Answered>}
 */
export async function answered(model, examples, between) {
  const answers = await batched(model, "infer", examples, between);
  const returned = model.signatures.loss ? await batched(model, "loss", { ...examples, ...answers }, between) : {};
  return { answers, examples, losses: mapped(returned, ({ data }) => data) };
}

/**
 * Run a signature on any number of rows, batch by batch; the last one is filled up with its first row.
 *
 * @param {Caller} model
 * @param {string} signature One that takes nothing but rows.
 * @param {Readonly<Record<string, Value>>} values Its inputs by name, `[rows, ...]`, and others.
 * @param {Between} [between]
 * @returns {Promise<Record<string, Value>>} All outputs by name, `[rows, ...]`.
 */
export async function batched(model, signature, values, between = async () => {}) {
  const { inputs, outputs } = model.signatures[signature];
  const size = inputs[0].shape[0];
  const count = values[inputs[0].name].shape[0];
  /** @type {Record<string, Value>} */
  const found = {};
  for (const { name, dtype, shape: [, ...rest] } of outputs) {
    found[name] = { data: new TYPES[dtype](count * product(rest)), shape: [count, ...rest] };
  }
  for (let start = 0; start < count; start += size) {
    await between(start / size, calls(model, signature, count));
    const real = Math.min(size, count - start);
    const chosen = Int32Array.from({ length: size }, (_, i) => start + (i < real ? i : 0));
    const given = Object.fromEntries(inputs.map(({ name }) => [name, gathered(values[name], chosen)]));
    const returned = await model.call(signature, given);
    for (const [name, { data }] of Object.entries(found)) {
      const width = data.length / count;
      data.set(returned[name].subarray(0, real * width), start * width);
    }
  }
  return found;
}

/**
 * Return how many batches some rows take.
 *
 * @param {Caller} model
 * @param {string} signature
 * @param {number} rows
 */
export function calls(model, signature, rows) {
  return Math.ceil(rows / model.signatures[signature].inputs[0].shape[0]);
}

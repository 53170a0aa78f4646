/**
 * The device of a run that this phone is: a model, examples that stay here, and the work that the run asks for.
 *
 * @module
 */

import { figures, totalLoss } from "./figures.js";
import { answered, batched, calls } from "./inference.js";
import { filled, gathered, mapped, product } from "./tensors.js";

/** @typedef {import("./inference.js").Between} Between Called between steps, too. */
/** @typedef {import("./litert.js").Model} Model */
/** @typedef {import("./litert.js").Numbers} Numbers */
/** @typedef {import("./litert.js").TensorInfo} TensorInfo */
/** @typedef {import("./litert.js").Value} Value */
/** @typedef {import("./frames.js").Message} Message */

/**
 * Examples: inputs and targets by their names in `train`, `[examples, ...]`.
 *
 * @typedef {Record<string, Value>} Examples
 */

/** @typedef {Record<"train" | "validation" | "test", Examples>} Splits */

/**
 * @typedef {object} Reply
 * @property {Record<string, unknown>} header
 * @property {Record<string, Value>} [tensors]
 */

/** A device: the run sends weights and the order of rows; losses, weights and figures go back. */
export class Device {
  /**
   * @param {Model} model
   * @param {Record<string, any>} settings The header of the run's welcome.
   * @param {Splits} examples
   */
  constructor(model, settings, examples) {
    this.model = model;
    this.settings = settings;
    this.examples = examples;
    this.parameters = numbered(model.signatures.restore.inputs, "a");
    this.slots = numbered(model.signatures.restore_optimizer_state?.inputs ?? [], "s");
    this.offsets = numbered(model.signatures.set_gradient_offset?.inputs ?? [], "b");
    this.offsetIsSet = false;
  }

  /**
   * Do what a message asks for.
   *
   * @param {Message} message
   * @param {Between} between
   * @returns {Promise<Reply>}
   */
  async work({ header, tensors }, between) {
    switch (header.do) {
      case "write":
        return this.write(tensors);
      case "read":
        return this.read();
      case "train":
        return this.train(header, tensors, between);
      case "evaluate":
        return this.evaluate(header, tensors, between);
      default:
        throw new Error(`this page cannot ${header.do}; reload it`);
    }
  }

  /**
   * Set the weights and the optimizer's slots.
   *
   * @param {Record<string, Value>} tensors
   */
  async write({ weights, ...slots }) {
    await this.model.call("restore", this.parts(weights.data, this.parameters));
    if (this.slots.length) await this.model.call("restore_optimizer_state", slots);
    return { header: {} };
  }

  /** Return the weights and the optimizer's slots. */
  async read() {
    /** @type {Record<string, Value>} */
    const tensors = { weights: { data: await this.weights(), shape: [size(this.parameters)] } };
    if (this.slots.length) {
      const values = await this.model.call("optimizer_state");
      for (const { name, shape } of this.slots) tensors[name] = { data: values[name], shape };
    }
    return { header: {}, tensors };
  }

  /** @returns {Promise<Float32Array<ArrayBuffer>>} */
  async weights() {
    const values = await this.model.call("parameters");
    const vector = new Float32Array(size(this.parameters));
    let start = 0;
    for (const { name } of this.parameters) {
      vector.set(values[name], start);
      start += values[name].length;
    }
    return vector;
  }

  /**
   * Train on the rows of each step, and return the losses.
   *
   * @param {Record<string, any>} header
   * @param {Record<string, Value>} tensors
   * @param {Between} between
   */
  async train(header, { rows, sample_weight, sizes, b }, between) {
    const { signature, learning_rate, mu, trained } = header;
    const { inputs } = this.model.signatures[signature];
    const taken = inputs.map(({ name }) => name);
    const { train } = this.examples;
    const all = taken.includes("embedding") ? { ...train, ...(await batched(this.model, "embed", train, between)) } : train;
    const examples = Object.fromEntries(Object.entries(all).filter(([name]) => taken.includes(name)));
    const further = filled(inputs, this.settings.train_inputs);
    if (this.offsets.length) await this.setOffset(b?.data);
    const losses = new Float32Array(sizes.data.length);
    for (let step = 0, start = 0; step < losses.length; start += sizes.data[step], step += 1) {
      await between(step, losses.length);
      const chosen = rows.data.subarray(start, start + sizes.data[step]);
      /** @type {Record<string, Value | Numbers>} */
      const values = {
        ...further,
        ...mapped(examples, (value) => gathered(value, chosen)),
        sample_weight: { data: sample_weight.data.slice(start, start + chosen.length), shape: [chosen.length] },
        learning_rate: Float32Array.of(learning_rate),
        mu: Float32Array.of(mu),
      };
      const before = b && !this.offsets.length ? await this.weights() : null;
      const { loss } = await this.model.call(signature, values);
      losses[step] = loss[0];
      if (before) await this.addOffset(before, b.data, trained, mu, learning_rate);
    }
    return { header: {}, tensors: { losses: { data: losses, shape: [losses.length] } } };
  }

  /**
   * Set the gradient offset of later steps; undefined for zero.
   *
   * @param {Numbers | undefined} b
   */
  async setOffset(b) {
    if (!b && !this.offsetIsSet) return;
    await this.model.call("set_gradient_offset", this.parts(b ?? new Float32Array(size(this.offsets)), this.offsets));
    this.offsetIsSet = Boolean(b);
  }

  /**
   * Add an offset after a step of plain SGD: `w <- w - r (mu w_before + b)`, rounded to float32 at each operation.
   *
   * @param {Float32Array<ArrayBuffer>} before The weights before the step.
   * @param {Numbers} b A value for each trainable parameter.
   * @param {boolean[]} trained Whether the step trains a parameter, for each trainable one.
   * @param {number} mu
   * @param {number} rate
   */
  async addOffset(before, b, trained, mu, rate) {
    const after = await this.weights();
    let start = 0;
    let offset = 0;
    let trainable = 0;
    this.parameters.forEach(({ shape }, i) => {
      const count = product(shape);
      if (this.settings.trainable[i]) {
        for (let k = 0; k < count && trained[trainable]; k += 1) {
          const pull = Math.fround(Math.fround(before[start + k] * mu) + b[offset + k]);
          after[start + k] -= Math.fround(pull * rate);
        }
        offset += count;
        trainable += 1;
      }
      start += count;
    });
    await this.model.call("restore", this.parts(after, this.parameters));
  }

  /**
   * Return the figures of a split, or of examples that the message holds.
   *
   * @param {Record<string, any>} header
   * @param {Record<string, Value>} given
   * @param {Between} between
   */
  async evaluate({ split, only_loss }, given, between) {
    const examples = split === "given" ? given : this.examples[/** @type {keyof Splits} */ (split)];
    const { outputs } = this.settings;
    const found = await answered(this.model, examples, between);
    const own = only_loss ? { loss: totalLoss(outputs, found) } : figures(outputs, found);
    return { header: { figures: own, calls: calls(this.model, "infer", lengthOf(examples)) } };
  }

  /**
   * Return the parts of a vector by name.
   *
   * @param {Numbers} vector
   * @param {readonly TensorInfo[]} infos
   */
  parts(vector, infos) {
    /** @type {Record<string, Value>} */
    const parts = {};
    let start = 0;
    for (const { name, shape } of infos) {
      parts[name] = { data: vector.slice(start, start + product(shape)), shape };
      start += product(shape);
    }
    return parts;
  }
}

/** @param {Examples} examples */
export function lengthOf(examples) {
  return Object.values(examples)[0].shape[0];
}

/**
 * Return tensors `a0..aN` in their order.
 *
 * @param {readonly TensorInfo[]} infos
 * @param {string} prefix
 */
function numbered(infos, prefix) {
  const number = (/** @type {TensorInfo} */ { name }) => Number(name.slice(prefix.length));
  return [...infos].sort((one, other) => number(one) - number(other));
}

/** @param {readonly TensorInfo[]} infos */
function size(infos) {
  return infos.reduce((count, { shape }) => count + product(shape), 0);
}

/**
 * Training and evaluation of one compiled model on examples of the user.
 *
 * @module
 */

import { figures } from "./figures.js";
import { answered } from "./inference.js";
import { largest } from "./losses.js";
import { RowForm } from "./row_form.js";
import { filled } from "./tensors.js";

/** @typedef {import("./litert.js").Model} Model */
/** @typedef {import("./litert.js").Numbers} Numbers */
/** @typedef {import("./litert.js").Value} Value */
/** @typedef {import("./subject.js").Description} Description */
/** @typedef {Record<string, Value>} Batch Inputs, targets and weights of a step's rows, by their names in `train`. */
/** @typedef {Record<string, Numbers>} Tensors */
/** @typedef {{ weights: Tensors, slots: Tensors | null }} State */

/**
 * @typedef {object} Example
 * @property {readonly number[]} x As many numbers as the model takes for an example, those of each input in turn.
 * @property {readonly number[]} y As many numbers as the model's targets have.
 * @property {boolean} held Whether it is kept out of training, to measure its figures.
 * @property {string} label Its name for the user.
 */

const WITHOUT_REST = 40; // milliseconds

/** Steps and figures of a model. */
export class Trainer {
  /**
   * @param {Model} model
   * @param {Description} description
   */
  constructor(model, description) {
    this.model = model;
    this.description = description;
    this.form = new RowForm(model, description);
    this.rows = description.batch_size;
    /** @type {Promise<unknown>} */
    this.last = Promise.resolve();
  }

  /**
   * Call a signature when the calls before have ended.
   *
   * @param {string} signature
   * @param {Readonly<Record<string, Value | Numbers>>} [inputs]
   */
  call(signature, inputs) {
    const result = this.last.then(() => this.model.call(signature, inputs));
    this.last = result.catch(() => {});
    return result;
  }

  get signatures() {
    return this.model.signatures;
  }

  /** The shape of one example of a model with one input. */
  get shape() {
    return this.form.inputs[0].shape;
  }

  /** @returns {Batch} Zeros. */
  blank() {
    const zeros = (/** @type {{ size: number }[]} */ parts) => parts.flatMap(({ size }) => new Array(size).fill(0));
    return this.batch([{ x: zeros(this.form.inputs), y: zeros(this.form.targets) }]);
  }

  /**
   * Return a batch of the model's size. Rows beyond the examples repeat them; they count for nothing if the model takes
   * `sample_weight`.
   *
   * @param {readonly import("./row_form.js").Numbers[]} examples At least one, at most `rows`.
   * @returns {Batch}
   */
  batch(examples) {
    const weighted = this.signatures.train.inputs.some(({ name }) => name === "sample_weight");
    const rows = Array.from({ length: this.rows }, (_, row) => examples[row % examples.length]);
    const real = weighted ? examples.length : this.rows;
    const weight = Float32Array.from(rows, (_, row) => (row < real ? this.rows / real : 0));
    return { ...this.form.tensors(rows), sample_weight: { data: weight, shape: [weight.length] } };
  }

  /**
   * Train one step.
   *
   * @param {Batch} batch
   * @returns {Promise<number>} The batch's loss.
   */
  async step(batch) {
    const further = filled(this.signatures.train.inputs, this.description.train_inputs);
    const learning_rate = Float32Array.of(this.description.learning_rate ?? 0);
    return (await this.call("train", { ...batch, ...further, learning_rate, mu: Float32Array.of(0) })).loss[0];
  }

  /**
   * @param {Batch} batch
   * @returns {Promise<Record<string, Numbers>>} The outputs for a batch.
   */
  infer(batch) {
    return this.call("infer", batch);
  }

  /**
   * @param {readonly number[]} x
   * @returns {Promise<Numbers>} The first output for one example.
   */
  async answer(x) {
    const [{ answer }] = this.description.outputs;
    const y = this.form.targets.flatMap(({ size }) => new Array(size).fill(0));
    const outputs = (await this.infer(this.batch([{ x, y }])))[answer];
    return outputs.slice(0, outputs.length / this.rows);
  }

  /**
   * Train passes over the examples, each in random order, until it is told to stop. The page stays responsive.
   *
   * @param {readonly Example[]} examples
   * @param {(steps: number, loss: number) => boolean} goOn Asked after each step.
   * @returns {Promise<number[]>} The loss of each step.
   */
  async train(examples, goOn) {
    const losses = [];
    let rested = performance.now();
    for (;;) {
      const order = shuffled(examples);
      for (let start = 0; start < order.length; start += this.rows) {
        losses.push(await this.step(this.batch(order.slice(start, start + this.rows))));
        if (!goOn(losses.length, losses[losses.length - 1])) return losses;
        if (performance.now() - rested > WITHOUT_REST) {
          await new Promise((resolve) => setTimeout(resolve));
          rested = performance.now();
        }
      }
    }
  }

  /**
   * Return the figures that the page shows, as the simulation computes them; null where undefined.
   *
   * @param {readonly Example[]} examples
   * @returns {Promise<(number | null)[]>} In the order of the description's `scores`.
   */
  async scores(examples) {
    const { scores, outputs } = this.description;
    if (scores.length === 0) return [];
    const found = figures(outputs, await answered(this, this.form.tensors(examples)));
    return scores.map(({ name }) => found[name] ?? null);
  }

  /**
   * @param {number} label
   * @returns {number[]} The target of an example of a class, as the model's loss takes it.
   */
  target(label) {
    const [{ size }] = this.form.targets;
    return size > 1 ? Array.from({ length: size }, (_, index) => Number(index === label)) : [label];
  }

  /**
   * @param {Numbers} output Of one example.
   * @returns {number} The class that the model reads.
   */
  classOf(output) {
    if (output.length > 1) return largest(output);
    return Number(output[0] > (this.description.outputs[0].from_logits ? 0 : 0.5));
  }

  /** @returns {Promise<State>} Weights and optimizer slots. */
  async state() {
    const slots = "optimizer_state" in this.model.signatures ? await this.call("optimizer_state") : null;
    return { weights: await this.call("parameters"), slots };
  }

  /**
   * @param {State} state
   * @throws {Error} If it is of another model.
   */
  async restore({ weights, slots }) {
    await this.call("restore", this.shaped("restore", weights));
    if (slots) await this.call("restore_optimizer_state", this.shaped("restore_optimizer_state", slots));
  }

  /**
   * @param {string} signature
   * @param {Tensors} tensors
   * @returns {Tensors} Those that the signature takes.
   */
  shaped(signature, tensors) {
    return Object.fromEntries(this.model.signatures[signature].inputs.map(({ name }) => [name, tensors[name]]));
  }
}

/**
 * @template Item
 * @param {readonly Item[]} items
 * @returns {Item[]} In random order (Fisher and Yates).
 */
function shuffled(items) {
  const order = [...items];
  for (let last = order.length - 1; last > 0; last--) {
    const other = Math.floor(Math.random() * (last + 1));
    [order[last], order[other]] = [order[other], order[last]];
  }
  return order;
}

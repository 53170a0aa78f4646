/**
 * Training and evaluation of one compiled model on examples of the user.
 *
 * @module
 */

/** @typedef {import("./litert.js").Model} Model */
/** @typedef {import("./litert.js").Numbers} Numbers */
/** @typedef {import("./litert.js").TensorInfo} TensorInfo */
/** @typedef {import("./litert.js").Value} Value */
/** @typedef {import("./subject.js").Description} Description */
/** @typedef {{ x: Value, y: Value, weight: Float32Array<ArrayBuffer> }} Batch */
/** @typedef {Record<string, Numbers>} Tensors */
/** @typedef {{ weights: Tensors, slots: Tensors | null }} State */

/**
 * @typedef {object} Example
 * @property {number[]} x As many numbers as the model takes for an example.
 * @property {number[]} y As many numbers as the model's target has.
 * @property {boolean} held Whether it is kept out of training, to measure accuracy.
 * @property {string} label Its name for the user.
 */

const WITHOUT_REST = 40; // milliseconds
const ARRAYS = { float32: Float32Array, int32: Int32Array, uint8: Uint8Array };

/** Steps and figures of a model. */
export class Trainer {
  /**
   * @param {Model} model
   * @param {Description} description
   */
  constructor(model, description) {
    this.model = model;
    this.description = description;
    this.inputs = model.signatures.train.inputs;
    this.x = this.input("x");
    this.y = this.input("y");
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

  /** The numbers of one example. */
  get exampleSize() {
    return size(this.x.shape.slice(1));
  }

  /** The numbers of one target. */
  get targetSize() {
    return size(this.y.shape.slice(1));
  }

  /**
   * @param {string} name
   * @returns {TensorInfo}
   */
  input(name) {
    const found = this.inputs.find((info) => info.name === name);
    if (!found) throw new Error(`The model has no training input ${name}; it is not trainable on this page.`);
    return found;
  }

  /** @returns {Batch} Zeros. */
  blank() {
    const example = { x: new Array(this.exampleSize).fill(0), y: new Array(this.targetSize).fill(0), held: false, label: "" };
    return this.batch(new Array(this.rows).fill(example));
  }

  /**
   * Return a batch of the model's size. Rows beyond the examples repeat them; they count for nothing if the model takes
   * `sample_weight`.
   *
   * @param {readonly Example[]} examples At least one, at most `rows`.
   * @returns {Batch}
   */
  batch(examples) {
    const weighted = this.inputs.some(({ name }) => name === "sample_weight");
    const rows = Array.from({ length: this.rows }, (_, row) => examples[row % examples.length]);
    const real = weighted ? examples.length : this.rows;
    const weight = Float32Array.from(rows, (_, row) => (row < real ? this.rows / real : 0));
    const x = stacked(this.x, rows.map((example) => example.x));
    return { x, y: stacked(this.y, rows.map((example) => example.y)), weight };
  }

  /**
   * Train one step.
   *
   * @param {Batch} batch
   * @returns {Promise<number>} The batch's loss.
   */
  async step({ x, y, weight }) {
    /** @type {Record<string, Value>} */
    const values = { x, y, sample_weight: { data: weight, shape: [weight.length] } };
    for (const [name, value] of [["learning_rate", this.description.learning_rate ?? 0], ["mu", 0]]) {
      values[name] = { data: Float32Array.of(Number(value)), shape: [] };
    }
    const given = Object.fromEntries(this.inputs.map(({ name }) => [name, values[name]]));
    return (await this.call("train", given)).loss[0];
  }

  /**
   * @param {Value} x
   * @returns {Promise<Numbers>} The main output for a batch.
   */
  async infer(x) {
    return (await this.call("infer", { x }))[this.description.output];
  }

  /**
   * @param {Example} example
   * @returns {Promise<Numbers>} The main output for one example.
   */
  async answer(example) {
    const outputs = await this.infer(this.batch([example]).x);
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
   * Return the accuracy, or for regression the mean squared error.
   *
   * @param {readonly Example[]} examples
   */
  async score(examples) {
    const classifies = this.description.classes !== null;
    let sum = 0;
    for (const example of examples) {
      const output = await this.answer(example);
      sum += classifies ? this.rightOf(output, example.y) : meanSquare(output, example.y);
    }
    return sum / examples.length;
  }

  /**
   * Return the fraction of an example's positions whose class is right; most models have one position.
   *
   * @param {Numbers} output
   * @param {readonly number[]} target
   */
  rightOf(output, target) {
    const { loss, from_logits: logits } = this.description;
    if (loss === "binary_crossentropy") {
      const right = target.filter((value, index) => output[index] > (logits ? 0 : 0.5) === value > 0.5);
      return right.length / target.length;
    }
    const oneHot = loss !== "sparse_categorical_crossentropy";
    const positions = oneHot ? 1 : target.length;
    const classes = output.length / positions;
    let right = 0;
    for (let position = 0; position < positions; position++) {
      const found = largest(output.slice(position * classes, (position + 1) * classes));
      right += Number(found === (oneHot ? largest(target) : target[position]));
    }
    return right / positions;
  }

  /**
   * @param {number} label
   * @returns {number[]} The target of an example of a class, as the model's loss takes it.
   */
  target(label) {
    const oneHot = this.targetSize === this.description.classes && this.targetSize > 1;
    return oneHot ? Array.from({ length: this.targetSize }, (_, index) => Number(index === label)) : [label];
  }

  /**
   * @param {Numbers} output Of one example.
   * @returns {number} The class that the model reads.
   */
  classOf(output) {
    if (output.length > 1) return largest(output);
    return Number(output[0] > (this.description.from_logits ? 0 : 0.5));
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

/** @param {ArrayLike<number>} values */
export function largest(values) {
  let best = 0;
  for (let index = 1; index < values.length; index++) if (values[index] > values[best]) best = index;
  return best;
}

/** @param {readonly number[]} shape */
function size(shape) {
  return shape.reduce((product, axis) => product * axis, 1);
}

/**
 * @param {TensorInfo} info
 * @param {readonly (readonly number[])[]} rows
 * @returns {Value}
 */
function stacked({ dtype, shape }, rows) {
  return { data: ARRAYS[dtype].from(rows.flat()), shape: [rows.length, ...shape.slice(1)] };
}

/**
 * @param {Numbers} output
 * @param {readonly number[]} target
 */
function meanSquare(output, target) {
  return target.reduce((sum, value, index) => sum + (output[index] - value) ** 2, 0) / target.length;
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

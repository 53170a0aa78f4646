/**
 * The rows of numbers that a model takes as examples, checked as `odt_sim/device/examples.py` does.
 *
 * @module
 */

import { counted } from "./format.js";
import { product } from "./frames.js";

/** @typedef {import("./litert.js").Model} Model */
/** @typedef {import("./rows.js").Row} Row */

/** @typedef {{ shape: number[], size: number, dtype: keyof typeof ARRAYS }} Part A row of an input of `train`. */

/**
 * What the server says about a model; null where it does not apply.
 *
 * @typedef {object} About
 * @property {string} name
 * @property {string | null} loss
 * @property {number | null} classes
 * @property {number | null} vocabulary The number of ids that the model knows.
 */

const ARRAYS = { float32: Float32Array, int32: Int32Array, uint8: Uint8Array };
const LABELS = "sparse_categorical_crossentropy";
const PROBABILITIES = ["categorical_crossentropy", "binary_crossentropy", "kl_divergence"];
const ROUNDING = 1e-6; // what a probability in float32 may exceed 1 by

/** The numbers of x, then those of y. */
export class RowForm {
  /**
   * @param {Model} model
   * @param {About} about
   */
  constructor(model, about) {
    this.x = partOf(model, "x");
    this.y = partOf(model, "y");
    this.about = about;
  }

  /** What a row holds, in words. */
  get text() {
    return `${counted(this.x.size, "input")}, then ${counted(this.y.size, "target")}`;
  }

  /**
   * @param {Row} row
   * @returns {{ x: number[], y: number[] }}
   * @throws {Error} If it does not fit the model.
   */
  parts({ where, numbers }) {
    if (numbers.length !== this.x.size + this.y.size) {
      throw new Error(`${where} has ${counted(numbers.length, "number")}; the model takes ${this.text}.`);
    }
    const place = (/** @type {number} */ column) => `${where}, column ${column + 1}`;
    numbers.forEach((value, column) => checkType(value, column < this.x.size ? this.x : this.y, place(column)));
    const [x, y] = [numbers.slice(0, this.x.size), numbers.slice(this.x.size)];
    x.forEach((id, column) => this.checkId(id, place(column)));
    y.forEach((target, index) => this.checkTarget(target, place(x.length + index)));
    return { x, y };
  }

  /**
   * @param {number} id
   * @param {string} where
   */
  checkId(id, where) {
    const { name, vocabulary } = this.about;
    if (vocabulary === null || (id >= 0 && id < vocabulary)) return;
    throw new Error(
      `${where}: id ${id} is out of range, ${name} knows the ids 0..${vocabulary - 1}; ` +
        "renumber the ids, or choose a model with a larger vocabulary.",
    );
  }

  /**
   * @param {number} target
   * @param {string} where
   */
  checkTarget(target, where) {
    const { name, loss, classes } = this.about;
    if (!classes || !(loss === LABELS || PROBABILITIES.includes(loss ?? ""))) return;
    const isLabel = loss === LABELS || this.y.size === 1;
    if (target >= 0 && target <= (isLabel ? classes - 1 : 1) + ROUNDING) return;
    throw new Error(
      isLabel
        ? `${where}: label ${target} is out of range, ${name} has the classes 0..${classes - 1}; ` +
            "renumber the labels or choose a model with more outputs."
        : `${where}: ${target} is out of range, ${loss} takes 0..1; renumber the labels or rescale the targets.`,
    );
  }
}

/**
 * @param {Model} model
 * @param {string} name
 * @returns {Part}
 */
function partOf(model, name) {
  const [{ shape, dtype }] = model.signatures.train.inputs.filter((input) => input.name === name);
  return { shape: shape.slice(1), size: product(shape.slice(1)), dtype };
}

/**
 * @param {number} value
 * @param {Part} part
 * @param {string} where
 */
function checkType(value, { dtype }, where) {
  const [stored] = ARRAYS[dtype].of(value);
  if (dtype === "float32" ? Number.isFinite(stored) : stored === value) return;
  const remedy = dtype === "float32" ? "rescale the column, or remove the row" : "convert it";
  throw new Error(`${where}: expected ${dtype}, found ${value}; ${remedy}.`);
}

/**
 * Examples of the user's own for a run: those of the personalize page, or of a file; both stay in this browser.
 *
 * @module
 */

import { gathered } from "./device.js";
import { counted } from "./format.js";
import { product } from "./frames.js";
import { readRows } from "./rows.js";
import { Store } from "./store.js";

/** @typedef {import("./device.js").Examples} Examples */
/** @typedef {import("./device.js").Splits} Splits */
/** @typedef {import("./litert.js").Model} Model */

const FEWEST = 3; // one for each part
const FILE = "file";
const PERSONAL = "examples"; // what the personalize page keeps
const TYPES = { float32: Float32Array, int32: Int32Array, uint8: Uint8Array };

/** The user's examples for one model. */
export class OwnExamples {
  /**
   * @param {Model} model
   * @param {Record<string, any>} settings The header of the run's welcome.
   */
  constructor(model, { fingerprint, loss, classes }) {
    this.store = new Store(fingerprint);
    this.labels = loss === "sparse_categorical_crossentropy" ? classes : 0;
    this.x = formOf(model, "x");
    this.y = formOf(model, "y");
  }

  /** What a row of a file holds. */
  get form() {
    return `${counted(this.x.size, "input")}, then ${counted(this.y.size, "target")}`;
  }

  /** @returns {Promise<Examples | null>} The examples that this browser keeps. */
  async kept() {
    const rows = await this.store.get(FILE);
    const personal = await this.store.get(PERSONAL);
    const found = rows ?? personal?.map((/** @type {{ x: number[], y: number[] }} */ { x, y }) => [...x, ...y]);
    return found?.length >= FEWEST ? this.examples(found) : null;
  }

  /**
   * Read examples from a file, and keep them.
   *
   * @param {File} file
   * @returns {Promise<Examples>}
   * @throws {Error} If they do not fit the model.
   */
  async take(file) {
    const rows = await readRows(file);
    const examples = this.examples(rows);
    await this.store.set(FILE, rows);
    return examples;
  }

  /** Forget the examples of the file. */
  forget() {
    return this.store.forget(FILE);
  }

  /**
   * @param {readonly number[][]} rows
   * @returns {Examples}
   */
  examples(rows) {
    if (rows.length < FEWEST) throw new Error(`A device needs at least ${FEWEST} examples; the file has ${rows.length}.`);
    rows.forEach((row, i) => this.check(row, i));
    const part = (/** @type {typeof this.x} */ { shape, type }, /** @type {number} */ start, /** @type {number} */ end) => {
      return { data: type.from(rows.flatMap((row) => row.slice(start, end))), shape: [rows.length, ...shape] };
    };
    return { x: part(this.x, 0, this.x.size), y: part(this.y, this.x.size, this.x.size + this.y.size) };
  }

  /**
   * @param {readonly number[]} row
   * @param {number} i
   */
  check(row, i) {
    if (row.length !== this.x.size + this.y.size) {
      throw new Error(`Row ${i + 1} has ${counted(row.length, "number")}; the model takes ${this.form}.`);
    }
    const wrong = row.slice(this.x.size).find((label) => !(label >= 0 && label < this.labels && label % 1 === 0));
    if (this.labels && wrong !== undefined) {
      throw new Error(`Row ${i + 1} has the label ${wrong}; the model has the classes 0 to ${this.labels - 1}.`);
    }
  }
}

/**
 * Return the form of one row of an input of `train`.
 *
 * @param {Model} model
 * @param {string} name
 */
function formOf(model, name) {
  const [{ shape, dtype }] = model.signatures.train.inputs.filter((input) => input.name === name);
  return { shape: shape.slice(1), size: product(shape.slice(1)), type: TYPES[dtype] };
}

/**
 * Return three of five examples to train, one to test and one to validate, in turn.
 *
 * @param {Examples} examples At least 3.
 * @returns {Splits}
 */
export function split({ x, y }) {
  const positions = Array.from({ length: x.shape[0] }, (_, i) => i);
  const part = (/** @type {readonly number[]} */ turns) => {
    const chosen = positions.filter((i) => turns.includes(i % 5));
    return { x: gathered(x, chosen), y: gathered(y, chosen) };
  };
  return { train: part([0, 3, 4]), test: part([1]), validation: part([2]) };
}

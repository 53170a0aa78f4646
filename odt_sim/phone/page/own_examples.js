/**
 * Examples of the user's own for a run: those of the personalize page, or of a file; both stay in this browser.
 *
 * @module
 */

import { lengthOf } from "./device.js";
import { RowForm } from "./row_form.js";
import { readRows } from "./rows.js";
import { Store } from "./store.js";
import { gathered, mapped } from "./tensors.js";

/** @typedef {import("./device.js").Examples} Examples */
/** @typedef {import("./device.js").Splits} Splits */
/** @typedef {import("./litert.js").Model} Model */

const FEWEST = 3; // one for each part
const FILE = "file";
const PERSONAL = "examples"; // what the personalize page keeps

/** The user's examples for one model. */
export class OwnExamples {
  /**
   * @param {Model} model
   * @param {Record<string, any>} settings The header of the run's welcome.
   */
  constructor(model, settings) {
    this.store = new Store(settings.fingerprint);
    this.form = new RowForm(model, /** @type {import("./row_form.js").About} */ (settings));
  }

  /**
   * @returns {Promise<Examples | null>} The examples that this browser keeps.
   * @throws {Error} If they do not fit the model.
   */
  async kept() {
    const rows = await this.store.get(FILE);
    const personal = await this.store.get(PERSONAL);
    /** @type {number[][]} */
    const found = rows ?? personal?.map((/** @type {{ x: number[], y: number[] }} */ { x, y }) => [...x, ...y]) ?? [];
    if (found.length < FEWEST) return null;
    return this.examples(found.map((numbers, i) => ({ where: `Example ${i + 1}`, numbers })));
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
    await this.store.set(FILE, rows.map(({ numbers }) => numbers));
    return examples;
  }

  /** Delete the examples of the file. */
  forget() {
    return this.store.forget(FILE);
  }

  /**
   * @param {readonly import("./rows.js").Row[]} rows
   * @returns {Examples}
   */
  examples(rows) {
    if (rows.length < FEWEST) throw new Error(`A device needs at least ${FEWEST} examples; the file has ${rows.length}.`);
    return this.form.tensors(rows.map((row) => this.form.parts(row)));
  }
}

/**
 * Return three of five examples to train, one to test and one to validate, in turn.
 *
 * @param {Examples} examples At least 3.
 * @returns {Splits}
 */
export function split(examples) {
  const positions = Array.from({ length: lengthOf(examples) }, (_, i) => i);
  const part = (/** @type {readonly number[]} */ turns) => {
    const chosen = positions.filter((i) => turns.includes(i % 5));
    return mapped(examples, (value) => gathered(value, chosen));
  };
  return { train: part([0, 3, 4]), test: part([1]), validation: part([2]) };
}

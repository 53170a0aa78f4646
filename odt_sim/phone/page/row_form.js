/**
 * The rows of numbers that a model takes as examples, checked as `odt_sim/device/examples.py` does.
 *
 * @module
 */

import { counted } from "./format.js";
import { product, TYPES } from "./tensors.js";

/** @typedef {import("./litert.js").Model} Model */
/** @typedef {import("./litert.js").Value} Value */
/** @typedef {import("./losses.js").Output} Output */
/** @typedef {import("./rows.js").Row} Row */

/**
 * An input of `train` that takes numbers of a row.
 *
 * @typedef {object} Part
 * @property {string} name
 * @property {number[]} shape Of one example.
 * @property {number} size
 * @property {keyof typeof TYPES} dtype
 */

/**
 * What the server says about a model.
 *
 * @typedef {object} About
 * @property {string} name
 * @property {{ name: string, vocabulary: number | null }[]} inputs In the model's order; the vocabulary is the number of ids
 *   that an input takes, null if it takes none.
 * @property {string[]} targets The names of the targets, in the model's order.
 * @property {Output[]} outputs
 */

/** @typedef {{ readonly x: readonly number[], readonly y: readonly number[] }} Numbers The numbers of a row, of inputs and of targets. */

const LABELS = ["sparse_categorical_crossentropy", "ctc"];
const PROBABILITIES = ["categorical_crossentropy", "binary_crossentropy", "kl_divergence"];
const ROUNDING = 1e-6; // what a probability in float32 may exceed 1 by

/** The numbers of each input in the model's order, then those of each target. */
export class RowForm {
  /**
   * @param {Pick<Model, "signatures">} model
   * @param {About} about
   */
  constructor(model, about) {
    this.about = about;
    this.inputs = about.inputs.map(({ name }) => partOf(model, name));
    this.targets = about.targets.map((name) => partOf(model, name));
  }

  /** What a row holds, in words. */
  get text() {
    return `${listed(this.inputs, "input")}, then ${listed(this.targets, "target")}`;
  }

  /**
   * @param {Row} row
   * @returns {{ x: number[], y: number[] }}
   * @throws {Error} If it does not fit the model.
   */
  parts({ where, numbers }) {
    const [inputs, targets] = [sizeOf(this.inputs), sizeOf(this.targets)];
    if (numbers.length !== inputs + targets) {
      throw new Error(`${where} has ${counted(numbers.length, "number")}; the model takes ${this.text}.`);
    }
    const parts = [...this.inputs, ...this.targets];
    const several = parts.length > 2;
    let column = 0;
    for (const part of parts) {
      for (let i = 0; i < part.size; i += 1, column += 1) {
        const place = `${where}, column ${column + 1}${several ? ` (${label(part)})` : ""}`;
        checkType(numbers[column], part, place);
        if (column < inputs) this.checkId(numbers[column], part, place);
        else this.checkTarget(numbers[column], part, place);
      }
    }
    return { x: numbers.slice(0, inputs), y: numbers.slice(inputs) };
  }

  /**
   * Return examples as the model takes them.
   *
   * @param {readonly Numbers[]} examples
   * @returns {Record<string, Value>} `[examples, ...]`, by the names of inputs and targets.
   */
  tensors(examples) {
    return { ...stacked(this.inputs, examples.map(({ x }) => x)), ...stacked(this.targets, examples.map(({ y }) => y)) };
  }

  /**
   * @param {number} id
   * @param {Part} part
   * @param {string} where
   */
  checkId(id, part, where) {
    const vocabulary = this.about.inputs.find(({ name }) => name === part.name)?.vocabulary ?? null;
    if (vocabulary === null || (id >= 0 && id < vocabulary)) return;
    throw new Error(
      `${where}: id ${id} is out of range, ${this.about.name} accepts ids 0..${vocabulary - 1}; ` +
        "renumber the ids, or choose a model with a larger vocabulary.",
    );
  }

  /**
   * @param {number} target
   * @param {Part} part
   * @param {string} where
   */
  checkTarget(target, part, where) {
    const output = this.about.outputs.find((own) => own.target === part.name);
    const { loss, classes, ignore_class } = output ?? { loss: null, classes: null, ignore_class: null };
    if (!classes || target === ignore_class || ![...LABELS, ...PROBABILITIES].includes(loss ?? "")) return;
    const isLabel = LABELS.includes(loss ?? "") || part.size === 1;
    if (target >= 0 && target <= (isLabel ? classes - 1 : 1) + ROUNDING) return;
    throw new Error(
      isLabel
        ? `${where}: label ${target} is out of range, ${this.about.name} has classes 0..${classes - 1}; ` +
            "renumber the labels or choose a model with more outputs."
        : `${where}: ${target} is out of range, ${loss} takes 0..1; renumber the labels or rescale the targets.`,
    );
  }
}

/**
 * @param {Pick<Model, "signatures">} model
 * @param {string} name
 * @returns {Part}
 */
function partOf(model, name) {
  const [{ shape, dtype }] = model.signatures.train.inputs.filter((input) => input.name === name);
  return { name, shape: shape.slice(1), size: product(shape.slice(1)), dtype };
}

/** @param {readonly Part[]} parts */
function sizeOf(parts) {
  return parts.reduce((sum, { size }) => sum + size, 0);
}

/** @param {Part} part */
function label({ name }) {
  return name.slice(2) || name; // `x_user` is user
}

/**
 * @param {readonly Part[]} parts
 * @param {string} noun
 * @returns {string} Such as `2 inputs`, or `11 inputs (user, 10 of history)`.
 */
function listed(parts, noun) {
  const each = parts.map((part) => (part.size === 1 ? label(part) : `${part.size.toLocaleString("en")} of ${label(part)}`));
  return counted(sizeOf(parts), noun) + (parts.length > 1 ? ` (${each.join(", ")})` : "");
}

/**
 * Return the numbers of rows as a tensor for each part.
 *
 * @param {readonly Part[]} parts
 * @param {readonly (readonly number[])[]} rows
 * @returns {Record<string, Value>}
 */
function stacked(parts, rows) {
  /** @type {Record<string, Value>} */
  const tensors = {};
  let start = 0;
  for (const { name, shape, size, dtype } of parts) {
    const [from, end] = [start, start + size];
    tensors[name] = { data: TYPES[dtype].from(rows.flatMap((row) => row.slice(from, end))), shape: [rows.length, ...shape] };
    start = end;
  }
  return tensors;
}

/**
 * @param {number} value
 * @param {Part} part
 * @param {string} where
 */
function checkType(value, { dtype }, where) {
  const [stored] = TYPES[dtype].of(value);
  if (dtype === "float32" ? Number.isFinite(stored) : stored === value) return;
  const remedy = dtype === "float32" ? "rescale the column, or remove the row" : "convert it";
  throw new Error(`${where}: expected ${dtype}, found ${value}; ${remedy}.`);
}

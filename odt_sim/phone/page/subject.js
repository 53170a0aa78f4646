/**
 * The model that this page was opened for, and what the server says about it.
 *
 * @module
 */

import { load } from "./litert.js";

/** @typedef {import("./litert.js").Model} Model */
/** @typedef {{ batch: number, median: number, lower_quartile: number, upper_quartile: number, calls: number }} Timing */

/** @typedef {{ name: string, title: string, percent: boolean }} Score A metric; percent is of a fraction from 0 to 1. */

/**
 * What the page cannot read from the file itself; see `odt_sim/phone/routes.py`.
 *
 * @typedef {object} Description
 * @property {string} name
 * @property {string} fingerprint
 * @property {number} batch_size
 * @property {{ name: string, vocabulary: number | null }[]} inputs In the model's order.
 * @property {string[]} targets Their names, in the model's order.
 * @property {import("./losses.js").Output[]} outputs
 * @property {Record<string, number>} train_inputs What further inputs of steps are filled with, by name.
 * @property {Score[]} scores The figures to show of examples that are held out; none if the loss is unknown.
 * @property {number | null} learning_rate
 * @property {{ name: string, shape: number[] }[]} parameters
 * @property {string[]} labels
 * @property {"drawing" | "motion" | "rows"} source
 * @property {string} origin Where the recorded examples come from.
 * @property {[number, number]} shades The values of paper and of ink in drawings.
 * @property {Record<string, Timing>} python
 */

/** A file, what the server says about it, and LiteRT.js to run it. */
export class Subject {
  /**
   * @param {import("./litert.js").LiteRt} litert
   * @param {Uint8Array} bytes
   * @param {Description} description
   */
  constructor(litert, bytes, description) {
    this.litert = litert;
    this.bytes = bytes;
    this.description = description;
  }

  /** Compile the file anew: variables of its own, with their initial values. */
  compile() {
    return this.litert.compile(this.bytes);
  }
}

/**
 * Load everything that the sections share.
 *
 * @returns {Promise<Subject>}
 */
export async function loadSubject() {
  const [settings, description, bytes] = await Promise.all([
    json("settings.json"),
    json("model.json"),
    binary("model.tflite"),
  ]);
  return new Subject(await load({ assets: settings.assets }), bytes, description);
}

/** @param {string} name */
export async function json(name) {
  return (await answer(name)).json();
}

/** @param {string} name */
export async function binary(name) {
  return new Uint8Array(await (await answer(name)).arrayBuffer());
}

/**
 * @param {string} name
 * @param {RequestInit} [request]
 * @throws {Error} The server's own sentence, or that it cannot be reached.
 */
export async function answer(name, request) {
  let response;
  try {
    response = await fetch(name, request);
  } catch (error) {
    throw new Error("The server cannot be reached; check that it is running and that this device is in its network.", {
      cause: error,
    });
  }
  if (!response.ok) throw new Error((await response.text()) || `${name}: the server answered ${response.status}.`);
  return response;
}

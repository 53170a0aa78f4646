/**
 * Checks: repeat the calls that Python recorded, and compare every output.
 *
 * @module
 */

import { action, element, Notice, table } from "./dom.js";
import { counted, number } from "./format.js";
import { binary, json } from "./subject.js";
import { mapped, TYPES } from "./tensors.js";

/** @typedef {import("./subject.js").Subject} Subject */
/** @typedef {import("./litert.js").Numbers} Numbers */
/** @typedef {{ dtype: string, shape: number[], start: number }} Stored */
/** @typedef {{ signature: string, inputs: Record<string, Stored>, outputs: Record<string, Stored> }} Call */
/** @typedef {{ signature: string, calls: number, difference: number }} Finding */

/** The relative difference up to which results count as equal: the sums of two machines differ in the last bits. */
export const TOLERANCE = 1e-5;

/** The rounding error of an output, relative to the largest target: four units in the last place of a float32. */
const ROUNDING = 2 ** -21;

const LOSS = /^loss(es(_.*)?)?$/; // of a step, and of each example

/** @param {Subject} subject */
export function checkSection(subject) {
  const notice = new Notice();
  const result = element("div");
  const run = action(notice, async () => {
    notice.show("Repeating the recorded calls …");
    result.replaceChildren();
    const findings = await check(subject, (done, all) => notice.show(`Repeating the recorded calls: ${done} of ${all}`));
    notice.show(...verdict(findings));
    result.replaceChildren(tableOf(findings));
  });
  return element(
    "div",
    {},
    element("p", {}, "This device repeats what Python recorded, and compares losses, outputs, weights and slots."),
    element("div", { class: "row" }, element("button", { class: "primary", type: "button", onclick: run }, "Run the check")),
    notice.element,
    result,
  );
}

/**
 * Repeat all recorded calls with a fresh copy of the model.
 *
 * @param {Subject} subject
 * @param {(done: number, all: number) => void} [progress]
 * @returns {Promise<Finding[]>} A finding for each signature, in the order of their first calls.
 */
export async function check(subject, progress = () => {}) {
  const calls = /** @type {Call[]} */ (await json("reference.json"));
  const values = await binary("reference.bin");
  const model = await subject.compile();
  /** @type {Map<string, Finding>} */
  const findings = new Map();
  try {
    for (const [index, { signature, inputs, outputs }] of calls.entries()) {
      const given = mapped(inputs, (stored) => numbers(values, stored));
      const found = await model.call(signature, given);
      const expected = mapped(outputs, (stored) => numbers(values, stored).data);
      const before = findings.get(signature) ?? { signature, calls: 0, difference: 0 };
      const largest = Math.max(before.difference, difference(found, expected, largestTarget(given)));
      findings.set(signature, { signature, calls: before.calls + 1, difference: largest });
      progress(index + 1, calls.length);
      await new Promise((resolve) => setTimeout(resolve));
    }
  } finally {
    model.delete();
  }
  return [...findings.values()];
}

/**
 * Return the largest difference of a call's outputs, relative to the largest of their values. Floats share that scale: some
 * weights have gradients of 0, and hold nothing but rounding errors. Integers have a scale for each tensor. The scale of a loss
 * is at least 1, and larger for large targets: a model that fits its examples has a loss near 0, whose rounding error is that
 * of the larger outputs.
 *
 * @param {Readonly<Record<string, Numbers>>} found
 * @param {Readonly<Record<string, Numbers>>} expected
 * @param {number} [target] The largest absolute target that the call was given.
 * @returns {number} Infinity if an output is missing, of another size, or not a number where the other is one.
 */
export function difference(found, expected, target = 0) {
  const ratios = [0];
  let [distance, scale] = [0, 0];
  for (const [name, values] of Object.entries(expected)) {
    if (found[name]?.length !== values.length) return Infinity;
    const own = farthest(found[name], values);
    const greatest = magnitude(values);
    const least = LOSS.test(name) ? smallestScale(greatest, target) : 0;
    if (values instanceof Float32Array) [distance, scale] = [Math.max(distance, own), Math.max(scale, greatest, least)];
    else ratios.push(own / (greatest || 1));
  }
  return Math.max(distance / (scale || 1), ...ratios);
}

/**
 * Return the smallest scale of losses, which takes what the rounding errors of outputs as large as the targets change in it as
 * equal: as much as they are in an absolute error, and twice the error as much in a squared one.
 *
 * @param {number} loss The largest.
 * @param {number} target
 */
function smallestScale(loss, target) {
  return Math.max(1, (Math.max(1, 2 * Math.sqrt(loss)) * target * ROUNDING) / TOLERANCE);
}

/**
 * @param {Readonly<Record<string, { data: Numbers }>>} inputs Of a call.
 * @returns {number} The largest absolute target that is a value, no label; 0 without.
 */
function largestTarget(inputs) {
  const targets = Object.entries(inputs).filter(([name, { data }]) => /^y(_|$)/.test(name) && data instanceof Float32Array);
  return Math.max(0, ...targets.map(([, { data }]) => magnitude(data)));
}

/**
 * @param {Numbers} found
 * @param {Numbers} expected
 * @returns {number} The largest absolute difference; values that are both not a number are equal.
 */
function farthest(found, expected) {
  let largest = 0;
  for (let index = 0; index < expected.length; index++) {
    if (Object.is(found[index], expected[index])) continue;
    const distance = Math.abs(found[index] - expected[index]);
    if (Number.isNaN(distance)) return Infinity;
    if (distance > largest) largest = distance;
  }
  return largest;
}

/**
 * @param {Numbers} values
 * @returns {number} The largest absolute value that is a number.
 */
function magnitude(values) {
  let largest = 0;
  for (const value of values) if (Math.abs(value) > largest) largest = Math.abs(value);
  return largest;
}

/**
 * @param {readonly Finding[]} findings
 * @returns {[string, "good" | "failed"]}
 */
function verdict(findings) {
  const different = findings.filter(({ difference: found }) => !(found <= TOLERANCE));
  if (different.length === 0) {
    return [`Equal: all ${counted(findings.length, "signature")} match Python.`, "good"];
  }
  const names = different.map(({ signature }) => signature).join(", ");
  return [`Not equal: ${names} of ${counted(findings.length, "signature")} differ from Python.`, "failed"];
}

/** @param {readonly Finding[]} findings */
function tableOf(findings) {
  const rows = findings.map(({ signature, calls, difference: found }) => [
    signature,
    String(calls),
    number(found),
    found <= TOLERANCE ? { text: "equal", kind: "good" } : { text: "not equal", kind: "failed" },
  ]);
  return element(
    "div",
    {},
    table(["Signature", "Calls", "Largest relative difference", "Result"], rows),
    element("p", { class: "muted" }, `Relative to the largest value of each call; for a small loss, to 1 or the rounding of its targets. Equal within ${number(TOLERANCE)}.`),
  );
}

/**
 * @param {Uint8Array<ArrayBuffer>} values
 * @param {Stored} stored
 */
function numbers(values, { dtype, shape, start }) {
  const kind = TYPES[/** @type {keyof typeof TYPES} */ (dtype)];
  if (!kind) throw new Error(`The recording contains ${dtype}, which LiteRT.js does not support; export the file again.`);
  const count = shape.reduce((product, size) => product * size, 1);
  return { data: new kind(values.buffer, values.byteOffset + start, count), shape };
}

/**
 * Calls of a model that Python recorded, made again in the page.
 *
 * @module
 */

import { load } from "./page/litert.js";

/** @typedef {{ dtype: keyof typeof TYPES, shape: number[], data: string }} Array Numbers in base64. */
/** @typedef {{ signature: string, inputs: Record<string, Array> }} Call */

const TYPES = { float32: Float32Array, int32: Int32Array, uint8: Uint8Array };

/**
 * Make calls in their order on a fresh model.
 *
 * @param {{ file: string, calls: Call[] }} recorded
 * @returns {Promise<Record<string, string>[]>} The outputs of each call in base64.
 */
export async function replay({ file, calls }) {
  const model = await (await load({ assets: "./assets/" })).compile(decode(file));
  try {
    const results = [];
    for (const { signature, inputs } of calls) {
      results.push(mapped(await model.call(signature, mapped(inputs, unpacked)), encode));
    }
    return results;
  } finally {
    model.delete();
  }
}

/**
 * Compile a model and return a function that repeats one of its calls.
 *
 * @param {{ file: string, call: Call }} recorded
 * @returns {Promise<(seconds: number) => Promise<number>>} From the seconds to repeat to the milliseconds of a call, the mean
 *   of the fastest 20 ms: other programs interrupt longer ones, and the clock ticks every 0.1 ms.
 */
export async function repeater({ file, call }) {
  const model = await (await load({ assets: "./assets/" })).compile(decode(file));
  const inputs = mapped(call.inputs, unpacked);
  await model.call(call.signature, inputs);
  return async (seconds) => {
    let fastest = Infinity;
    for (const end = performance.now() + 1000 * seconds; performance.now() < end; ) {
      const start = performance.now();
      let count = 0;
      for (; performance.now() - start < 20; count++) await model.call(call.signature, inputs);
      fastest = Math.min(fastest, (performance.now() - start) / count);
    }
    return fastest;
  };
}

/**
 * @param {Array} array
 * @returns {import("./page/litert.js").Value}
 */
function unpacked({ dtype, shape, data }) {
  return { data: new TYPES[dtype](decode(data).buffer), shape };
}

/**
 * @template T, U
 * @param {Record<string, T>} values
 * @param {(value: T) => U} change
 * @returns {Record<string, U>}
 */
function mapped(values, change) {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, change(value)]));
}

/** @param {string} text */
function decode(text) {
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

/** @param {import("./page/litert.js").Numbers} numbers */
function encode(numbers) {
  const bytes = new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength);
  let text = "";
  for (let start = 0; start < bytes.length; start += 0x8000) {
    text += String.fromCharCode(...bytes.subarray(start, start + 0x8000));
  }
  return btoa(text);
}

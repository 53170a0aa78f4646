/**
 * Messages between a run and this phone: one binary frame of a JSON header and tensors, as `odt_sim/phone/frames.py`
 * defines it.
 *
 * @module
 */

import { product, TYPES } from "./tensors.js";

const MAGIC = "odt1";

/** @typedef {import("./litert.js").Value} Value */

/**
 * @typedef {object} Message
 * @property {Record<string, any>} header What it says; `do` is its kind.
 * @property {Record<string, Value>} tensors
 */

/**
 * Return the frame of a message.
 *
 * @param {Record<string, unknown>} header
 * @param {Readonly<Record<string, Value>>} [tensors]
 * @returns {ArrayBuffer}
 */
export function encode(header, tensors = {}) {
  const declared = Object.entries(tensors).map(([name, { data, shape }]) => ({ name, dtype: dtypeOf(data), shape }));
  const text = new TextEncoder().encode(JSON.stringify({ ...header, tensors: declared }));
  const values = Object.values(tensors);
  const size = values.reduce((sum, { data }) => sum + padded(data.byteLength), 8 + padded(text.length));
  const frame = new Uint8Array(size);
  frame.set([...MAGIC].map((letter) => letter.charCodeAt(0)));
  new DataView(frame.buffer).setUint32(4, padded(text.length), true);
  frame.fill(32, 8, 8 + padded(text.length));
  frame.set(text, 8);
  let start = 8 + padded(text.length);
  for (const { data } of values) {
    frame.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), start);
    start += padded(data.byteLength);
  }
  return frame.buffer;
}

/**
 * Return the message of a frame; its tensors are views.
 *
 * @param {ArrayBuffer} frame
 * @returns {Message}
 * @throws {Error} If the frame is cut, or is none of this protocol.
 */
export function decode(frame) {
  const bytes = new Uint8Array(frame);
  if (bytes.length < 8 || String.fromCharCode(...bytes.slice(0, 4)) !== MAGIC) {
    throw new Error("The run sent a message that this page cannot read; reload the page.");
  }
  let start = 8 + new DataView(frame).getUint32(4, true);
  const { tensors: declared, ...header } = JSON.parse(new TextDecoder().decode(bytes.slice(8, start)));
  /** @type {Record<string, Value>} */
  const tensors = {};
  for (const { name, dtype, shape } of declared) {
    const type = TYPES[/** @type {keyof typeof TYPES} */ (dtype)];
    const count = product(shape);
    tensors[name] = { data: new type(frame, start, count), shape };
    start += padded(count * type.BYTES_PER_ELEMENT);
  }
  return { header, tensors };
}

/** @param {number} size */
function padded(size) {
  return Math.ceil(size / 8) * 8;
}

/** @param {import("./litert.js").Numbers} data */
function dtypeOf(data) {
  return Object.entries(TYPES).find(([, type]) => data instanceof type)?.[0];
}

/**
 * Examples of the user's own for a run: read from a file, kept in this browser, and split in three parts.
 *
 * @module
 */

import { gathered } from "./device.js";
import { product } from "./frames.js";

/** @typedef {import("./device.js").Examples} Examples */
/** @typedef {import("./device.js").Splits} Splits */
/** @typedef {import("./litert.js").Model} Model */
/** @typedef {import("./litert.js").Numbers} Numbers */

const DATABASE = "odt_sim.fleet";
const STORE = "examples";
const FEWEST = 3; // one for each part
const NPY = { "<f4": Float32Array, "<f8": Float64Array, "<i4": Int32Array, "<i8": BigInt64Array, "|u1": Uint8Array };
const TYPES = { float32: Float32Array, int32: Int32Array, uint8: Uint8Array };

/**
 * The form that a model expects of examples.
 *
 * @typedef {object} Form
 * @property {readonly number[]} x The shape of one input.
 * @property {readonly number[]} y The shape of one target; empty for a label.
 * @property {keyof typeof TYPES} xType
 * @property {keyof typeof TYPES} yType
 * @property {number | null} classes
 */

/**
 * @param {Model} model
 * @param {number | null} classes
 * @returns {Form}
 */
export function formOf(model, classes) {
  const inputs = model.signatures.train.inputs;
  const [x, y] = ["x", "y"].map((name) => inputs.find((input) => input.name === name) ?? inputs[0]);
  return { x: x.shape.slice(1), y: y.shape.slice(1), xType: x.dtype, yType: y.dtype, classes };
}

/**
 * Read examples from a CSV file, with the target in the last columns, or from `x.npy` and `y.npy`.
 *
 * @param {readonly File[]} files
 * @param {Form} form
 * @returns {Promise<Examples>}
 * @throws {Error} If they do not fit the model.
 */
export async function read(files, form) {
  if (files.length === 1 && /\.(csv|txt)$/i.test(files[0].name)) return fromCsv(await files[0].text(), form);
  const [x, y] = ["x", "y"].map((name) => files.find((file) => file.name === `${name}.npy`));
  if (files.length !== 2 || !x || !y) throw new Error("Choose one CSV file, or two files: x.npy and y.npy.");
  const [inputs, targets] = [fromNpy(await x.arrayBuffer(), x.name), fromNpy(await y.arrayBuffer(), y.name)];
  return checked(inputs.numbers, targets.numbers, inputs.rows, targets.rows, form);
}

/**
 * @param {string} text
 * @param {Form} form
 */
function fromCsv(text, form) {
  const lines = text.split(/\r?\n/).filter((line) => line.trim());
  const table = lines.map((line) => line.split(/[,;\t]/).map((cell) => (cell.trim() ? Number(cell) : NaN)));
  if (table.length && table[0].some(Number.isNaN)) table.shift(); // names of columns
  const [inputs, targets] = [product(form.x), product(form.y)];
  const wrong = table.findIndex((row) => row.length !== inputs + targets || row.some(Number.isNaN));
  if (wrong >= 0) {
    throw new Error(
      `Example ${wrong + 1}: expected ${inputs} numbers and then ${targets} for the target, ` +
        `found ${table[wrong].filter((value) => !Number.isNaN(value)).length} numbers in ${table[wrong].length} columns.`,
    );
  }
  const x = table.flatMap((row) => row.slice(0, inputs));
  return checked(x, table.flatMap((row) => row.slice(inputs)), table.length, table.length, form);
}

/**
 * @param {ArrayBuffer} content
 * @param {string} name
 */
function fromNpy(content, name) {
  const bytes = new Uint8Array(content);
  const view = new DataView(content);
  const long = bytes[6] > 1;
  const start = long ? 12 : 10;
  const end = content.byteLength > 12 ? start + (long ? view.getUint32(8, true) : view.getUint16(8, true)) : 0;
  const header = new TextDecoder("latin1").decode(bytes.slice(0, end));
  const type = /'descr': '([^']+)'/.exec(header)?.[1] ?? "";
  const shape = /'shape': \(([\d, ]*)\)/.exec(header)?.[1].split(",").filter((size) => size.trim()).map(Number);
  if (!header.startsWith("\x93NUMPY") || !shape?.length || header.includes("'fortran_order': True") || !(type in NPY)) {
    throw new Error(`${name}: expected an array that numpy.save wrote, of ${Object.keys(NPY).join(", ")}.`);
  }
  const kind = NPY[/** @type {keyof typeof NPY} */ (type)];
  if (content.byteLength !== end + product(shape) * kind.BYTES_PER_ELEMENT) throw new Error(`${name}: is cut.`);
  return { numbers: Array.from(new kind(content.slice(end)), Number), rows: shape[0] };
}

/**
 * @param {readonly number[]} x
 * @param {readonly number[]} y
 * @param {number} rows
 * @param {number} targets
 * @param {Form} form
 * @returns {Examples}
 */
function checked(x, y, rows, targets, form) {
  if (rows < FEWEST) throw new Error(`Expected at least ${FEWEST} examples, found ${rows}.`);
  if (rows !== targets) throw new Error(`x has ${rows} examples and y has ${targets}; give one y for each x.`);
  for (const [name, found, shape] of /** @type {const} */ ([["x", x, form.x], ["y", y, form.y]])) {
    if (found.length !== rows * product(shape)) {
      throw new Error(`${name}: expected [${shape.join(", ")}] for each example, found ${found.length / rows} numbers.`);
    }
    if (!found.every(Number.isFinite)) throw new Error(`${name} holds NaN or infinity; clean the data.`);
  }
  const { classes } = form;
  const wrong = classes && !form.y.length ? y.find((label) => !(Number.isInteger(label) && label >= 0 && label < classes)) : undefined;
  if (wrong !== undefined) throw new Error(`Label ${wrong} is out of range; the model has the classes 0 to ${Number(classes) - 1}.`);
  return {
    x: { data: TYPES[form.xType].from(x), shape: [rows, ...form.x] },
    y: { data: TYPES[form.yType].from(y), shape: [rows, ...form.y] },
  };
}

/**
 * Return three of five examples to train, one to validate and one to test, in turn.
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

/**
 * Keep examples in this browser.
 *
 * @param {Examples} examples
 */
export async function keep(examples) {
  await inStore("readwrite", (store) => store.put(examples, "own"));
}

/**
 * Return the examples that this browser keeps, if they have a model's form.
 *
 * @param {Form} form
 * @returns {Promise<Examples | null>}
 */
export async function kept(form) {
  const found = /** @type {Examples | undefined} */ (await inStore("readonly", (store) => store.get("own")));
  const same = (/** @type {readonly number[]} */ one, /** @type {readonly number[]} */ other) => `${one}` === `${other}`;
  return found && same(found.x.shape.slice(1), form.x) && same(found.y.shape.slice(1), form.y) ? found : null;
}

/** Forget the examples. */
export async function forget() {
  await inStore("readwrite", (store) => store.delete("own"));
}

/**
 * @param {IDBTransactionMode} mode
 * @param {(store: IDBObjectStore) => IDBRequest} work
 * @returns {Promise<unknown>}
 */
function inStore(mode, work) {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open(DATABASE, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
    opening.onerror = () => reject(new Error(`This browser cannot keep examples: ${opening.error?.message}`));
    opening.onsuccess = () => {
      const database = opening.result;
      const transaction = database.transaction(STORE, mode);
      const request = work(transaction.objectStore(STORE));
      transaction.oncomplete = () => resolve(request.result);
      transaction.onabort = () => reject(new Error(`This browser cannot keep examples: ${transaction.error?.message}`));
      transaction.addEventListener("complete", () => database.close());
    };
  });
}

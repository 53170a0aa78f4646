/**
 * Trainable `.tflite` files on LiteRT.js.
 *
 * LiteRT.js imports `@litertjs/wasm-utils` by this bare name, so a document that loads this module needs the import map of
 * `index.html` before its first module. Everything runs on the document's own thread: LiteRT.js cannot be loaded by a
 * module worker.
 *
 * @module
 */

import { TYPES } from "./tensors.js";

/** The version that `tests/phone/package.json` tests. */
export const VERSION = "2.5.3";
const CDN = `https://cdn.jsdelivr.net/npm/@litertjs/core@${VERSION}/`;
/** A module whose one function returns `i8x16.splat(0)`: valid only where WebAssembly has SIMD. */
const SIMD = [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 8, 1, 6, 0, 65, 0, 253, 15, 11];
const FAILURE = /^ERROR: (?:\[[^\]]*\] )?/; // with the place in LiteRT's code

/** @typedef {Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer> | Uint8Array<ArrayBuffer>} Numbers */
/** @typedef {keyof typeof TYPES} DType */
/** @typedef {{ data: Numbers, shape: readonly number[] }} Value */

/**
 * A tensor at the border of a signature.
 *
 * @typedef {object} TensorInfo
 * @property {string} name
 * @property {DType} dtype
 * @property {readonly number[]} shape -1 is an axis of any length.
 */

/**
 * @typedef {object} Signature
 * @property {string} name
 * @property {readonly TensorInfo[]} inputs
 * @property {readonly TensorInfo[]} outputs
 */

/**
 * Load LiteRT.js once; further calls return the same promise until one fails.
 *
 * @param {object} [options]
 * @param {string | null} [options.assets] The URL of a folder that holds `@litertjs/core` and `@litertjs/wasm-utils`, such
 *   as a served `node_modules/`; without it, the pinned version is loaded from a CDN.
 * @returns {Promise<LiteRt>}
 * @throws {Error} If the browser has no WebAssembly SIMD, or a file cannot be loaded.
 */
export function load({ assets = null } = {}) {
  loading ??= loadFrom(assets ? new URL("@litertjs/core/", folder(assets)).href : CDN).catch((error) => {
    loading = null;
    throw error;
  });
  return loading;
}

/** @type {Promise<LiteRt> | null} */
let loading = null;

/**
 * The errors that LiteRT printed. Its `run` resolves even if an op fails; the outputs then hold arbitrary values.
 *
 * @type {string[]}
 */
const errors = [];

/** Collect the errors that LiteRT prints; `loadLiteRt` passes this `Module` to Emscripten. */
function collectErrors() {
  const printErr = (/** @type {string} */ line) => {
    console.error(line);
    if (FAILURE.test(line)) errors.push(line.replace(FAILURE, "").replace(/\.$/, ""));
  };
  Object.assign(self, { Module: { printErr } });
}

/** @param {string} assets */
function folder(assets) {
  return new URL(assets.endsWith("/") ? assets : `${assets}/`, document.baseURI);
}

/**
 * @param {string} base The URL of the package `@litertjs/core`.
 * @returns {Promise<LiteRt>}
 */
async function loadFrom(base) {
  if (typeof WebAssembly !== "object" || !WebAssembly.validate(new Uint8Array(SIMD))) {
    throw new Error("This browser has no WebAssembly SIMD, which LiteRT.js needs; update it, or use another browser.");
  }
  try {
    const library = await import(`${base}dist/index.js`);
    collectErrors();
    await library.loadLiteRt(`${base}wasm/`);
    return new LiteRt(library);
  } catch (error) {
    throw new Error(`LiteRT.js ${VERSION} cannot be loaded from ${base}: ${reason(error)}`, { cause: error });
  }
}

/** LiteRT.js after its WebAssembly was loaded. */
export class LiteRt {
  /** @param {typeof import("@litertjs/core")} library */
  constructor(library) {
    this.library = library;
  }

  /**
   * Compile a file for the CPU; its variables hold their initial values.
   *
   * @param {ArrayBuffer | Uint8Array} bytes The content of a `.tflite` file.
   * @returns {Promise<Model>}
   * @throws {Error} If the bytes are no model, or one that LiteRT.js cannot run.
   */
  async compile(bytes) {
    const model = await this.compiled(bytes instanceof Uint8Array ? bytes : new Uint8Array(bytes));
    if (model.signatures.infer?.inputs.some(({ shape }) => shape[0] < 0)) {
      model.delete();
      throw new Error(
        "This file takes any number of rows, which LiteRT.js cannot run; export it with a batch_size (model.batch_size=16).",
      );
    }
    return model;
  }

  /** @param {Uint8Array} content */
  async compiled(content) {
    try {
      return new Model(this.library, await this.library.loadAndCompile(content, { accelerator: "wasm" }));
    } catch (error) {
      const type = /Element type (\w+) is not supported/.exec(reason(error))?.[1].toLowerCase();
      const why = type
        ? `a signature takes or returns ${type}, but LiteRT.js supports only float32, int32 and uint8; export the file again`
        : reason(error);
      throw new Error(`This file cannot be compiled: ${why}`, { cause: error });
    }
  }
}

/** A compiled file with variables of its own. */
export class Model {
  /**
   * @param {typeof import("@litertjs/core")} library
   * @param {import("@litertjs/core").CompiledModel} compiled
   */
  constructor(library, compiled) {
    this.library = library;
    this.compiled = compiled;
    /** @type {Readonly<Record<string, Signature>>} */
    this.signatures = Object.fromEntries(
      Object.entries(compiled.signatures).map(([name, runner]) => [
        name,
        { name, inputs: runner.getInputDetails().map(described), outputs: runner.getOutputDetails().map(described) },
      ]),
    );
  }

  /**
   * Run a signature.
   *
   * @param {string} signature
   * @param {Readonly<Record<string, Value | Numbers>>} [inputs] Every input by name; numbers alone have the declared shape.
   * @returns {Promise<Record<string, Numbers>>} A copy of every output by name.
   * @throws {Error} If the signature or an input is missing, an input has another type or size, or an op fails.
   */
  async call(signature, inputs = {}) {
    const declared = this.signatures[signature];
    if (!declared) {
      throw new Error(`No signature ${signature}; the file has ${Object.keys(this.signatures).join(", ")}.`);
    }
    /** @type {Record<string, import("@litertjs/core").Tensor>} */
    const tensors = {};
    /** @type {Record<string, import("@litertjs/core").Tensor>} */
    let results = {};
    try {
      for (const info of declared.inputs) {
        const { data, shape } = checked(signature, info, inputs[info.name]);
        tensors[info.name] = this.library.Tensor.fromTypedArray(data, [...shape]);
      }
      const before = errors.length;
      results = await this.run(signature, tensors);
      if (errors.length > before) throw new Error(`Signature ${signature} failed: ${errors.slice(before).join("; ")}`);
      return Object.fromEntries(Object.entries(results).map(([name, tensor]) => [name, copy(tensor)]));
    } finally {
      for (const tensor of [...Object.values(tensors), ...Object.values(results)]) tensor.delete();
    }
  }

  /**
   * @param {string} signature
   * @param {Record<string, import("@litertjs/core").Tensor>} tensors
   */
  async run(signature, tensors) {
    try {
      return await this.compiled.run(signature, tensors);
    } catch (error) {
      throw new Error(`Signature ${signature} failed: ${reason(error)}`, { cause: error });
    }
  }

  /** Free the file's memory; the model cannot be used any more. */
  delete() {
    this.compiled.delete();
  }
}

/**
 * @param {import("@litertjs/core").TensorDetails} details
 * @returns {TensorInfo}
 */
function described({ name, dtype, shape }) {
  return { name, dtype, shape: [...shape] };
}

/**
 * @param {string} signature
 * @param {TensorInfo} info
 * @param {Value | Numbers | undefined} given
 * @returns {Value}
 */
function checked(signature, info, given) {
  const where = `Signature ${signature}, input ${info.name}`;
  const expected = `${info.dtype} [${info.shape.join(", ")}]`;
  if (given === undefined) throw new Error(`${where}: missing; expected ${expected}.`);
  const { data, shape } = ArrayBuffer.isView(given) ? { data: given, shape: info.shape } : given;
  const found = `${data.constructor.name} [${shape.join(", ")}] of ${data.length} numbers`;
  const fits = shape.length === info.shape.length && info.shape.every((size, axis) => size < 0 || size === shape[axis]);
  const count = shape.reduce((product, size) => product * size, 1);
  if (!(data instanceof TYPES[info.dtype]) || !fits || count !== data.length) {
    throw new Error(`${where}: expected ${expected}, found ${found}.`);
  }
  return { data, shape };
}

/** @param {import("@litertjs/core").Tensor} tensor */
function copy(tensor) {
  return /** @type {Numbers} */ (tensor.toTypedArray());
}

/** @param {unknown} error */
function reason(error) {
  return error instanceof Error ? error.message : String(error);
}

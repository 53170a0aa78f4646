/**
 * Rows of numbers from a file of the user: `.csv`, or a two-dimensional `.npy`.
 *
 * @module
 */

const MAGIC = "\x93NUMPY";

/** @type {Record<string, (view: DataView, offset: number) => number>} */
const READERS = {
  "<f4": (view, offset) => view.getFloat32(offset, true),
  "<f8": (view, offset) => view.getFloat64(offset, true),
  "<i4": (view, offset) => view.getInt32(offset, true),
  "<i8": (view, offset) => Number(view.getBigInt64(offset, true)),
  "|u1": (view, offset) => view.getUint8(offset),
};

/**
 * @param {File} file
 * @returns {Promise<number[][]>}
 * @throws {Error} If it holds no rows of numbers.
 */
export async function readRows(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const isNpy = String.fromCharCode(...bytes.slice(0, 6)) === MAGIC;
  const rows = isNpy ? fromNpy(bytes) : fromCsv(new TextDecoder().decode(bytes));
  if (rows.length === 0) throw new Error(`${file.name} holds no rows; choose a .csv or .npy file with a row an example.`);
  return rows;
}

/**
 * @param {string} text
 * @returns {number[][]}
 */
export function fromCsv(text) {
  const lines = text.split(/\r?\n/).filter((line) => line.trim());
  const rows = lines.map((line) => line.split(/[,;\t]/).map((cell) => (cell.trim() ? Number(cell) : NaN)));
  if (rows[0]?.some(Number.isNaN)) rows.shift(); // a line of names
  const wrong = rows.findIndex((row) => !row.every(Number.isFinite));
  if (wrong >= 0) throw new Error(`Row ${wrong + 1} of the file holds something other than numbers.`);
  return rows;
}

/**
 * @param {Uint8Array} bytes
 * @returns {number[][]}
 */
export function fromNpy(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const [length, start] = bytes[6] === 1 ? [view.getUint16(8, true), 10] : [view.getUint32(8, true), 12];
  const header = new TextDecoder().decode(bytes.slice(start, start + length));
  const type = /'descr':\s*'([^']+)'/.exec(header)?.[1] ?? "";
  const shape = /'shape':\s*\((\d+),\s*(\d+)\)/.exec(header);
  const read = READERS[type];
  if (!read || !shape || /'fortran_order':\s*True/.test(header)) {
    throw new Error("The .npy file is no two-dimensional array of float32, float64, int32, int64 or uint8 in C order.");
  }
  const [rows, columns, width] = [Number(shape[1]), Number(shape[2]), Number(type.slice(2))];
  if (start + length + rows * columns * width > bytes.length) throw new Error("The .npy file is cut.");
  return Array.from({ length: rows }, (_, row) =>
    Array.from({ length: columns }, (__, column) => read(view, start + length + (row * columns + column) * width)),
  );
}

/**
 * Rows of numbers from a file of the user: `.csv`, or a two-dimensional `.npy`.
 *
 * @module
 */

/**
 * @typedef {object} Row
 * @property {string} where Such as `Line 3`, for errors.
 * @property {number[]} numbers
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
 * @returns {Promise<Row[]>}
 * @throws {Error} If it holds no rows of numbers.
 */
export async function readRows(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const isNpy = String.fromCharCode(...bytes.slice(0, 6)) === MAGIC;
  const rows = isNpy ? fromNpy(bytes) : fromCsv(new TextDecoder().decode(bytes));
  if (rows.length === 0) throw new Error(`${file.name} contains no rows; choose a .csv or .npy file with one row per example.`);
  return rows;
}

/**
 * @param {string} text
 * @returns {Row[]}
 * @throws {Error} If a cell below the names holds no number.
 */
export function fromCsv(text) {
  const lines = text
    .split(/\r?\n/)
    .map((line, index) => ({ where: `Line ${index + 1}`, cells: line.split(/[,;\t]/).map((cell) => cell.trim()) }))
    .filter(({ cells }) => cells.length > 1 || cells[0]);
  const named = lines.length > 0 && !lines[0].cells.some(isNumber);
  return lines.slice(Number(named)).map(({ where, cells }) => ({
    where,
    numbers: cells.map((cell, column) => numberOf(cell, `${where}, column ${column + 1}`)),
  }));
}

/** @param {string} cell */
function isNumber(cell) {
  return cell !== "" && !Number.isNaN(Number(cell));
}

/**
 * @param {string} cell
 * @param {string} where
 */
function numberOf(cell, where) {
  if (isNumber(cell)) return Number(cell);
  const found = cell.slice(0, 20) || "nothing";
  throw new Error(`${where}: expected a number, found ${found}; fill the cell, or remove the line.`);
}

/**
 * @param {Uint8Array} bytes
 * @returns {Row[]}
 */
export function fromNpy(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const [length, start] = bytes[6] === 1 ? [view.getUint16(8, true), 10] : [view.getUint32(8, true), 12];
  const header = new TextDecoder().decode(bytes.slice(start, start + length));
  const type = /'descr':\s*'([^']+)'/.exec(header)?.[1] ?? "";
  const shape = /'shape':\s*\((\d+),\s*(\d+)\)/.exec(header);
  const read = READERS[type];
  if (!read || !shape || /'fortran_order':\s*True/.test(header)) {
    throw new Error("The .npy file is not a two-dimensional array of float32, float64, int32, int64 or uint8 in C order.");
  }
  const [rows, columns, width] = [Number(shape[1]), Number(shape[2]), Number(type.slice(2))];
  if (start + length + rows * columns * width > bytes.length) throw new Error("The .npy file is truncated.");
  return Array.from({ length: rows }, (_, row) => ({
    where: `Row ${row + 1}`,
    numbers: Array.from({ length: columns }, (__, column) => read(view, start + length + (row * columns + column) * width)),
  }));
}

/**
 * Numbers as text.
 *
 * @module
 */

/**
 * @param {number} value
 * @returns {string} Three significant digits, or all digits of a large number.
 */
export function number(value) {
  if (value === 0 || !Number.isFinite(value)) return String(value);
  if (Math.abs(value) < 1e-3) return value.toExponential(1);
  return value >= 100 ? Math.round(value).toLocaleString("en") : value.toPrecision(3);
}

/**
 * @param {number} milliseconds
 * @returns {string}
 */
export function duration(milliseconds) {
  return `${number(milliseconds)} ms`;
}

/**
 * @param {number} fraction From 0 to 1.
 * @returns {string}
 */
export function percent(fraction) {
  return `${Math.round(100 * fraction)}%`;
}

/**
 * @param {number} count
 * @param {string} noun
 * @param {string} [nouns]
 * @returns {string} Such as `1 example` or `2 examples`.
 */
export function counted(count, noun, nouns = `${noun}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? noun : nouns}`;
}

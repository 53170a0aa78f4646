/**
 * Transcripts beside the right ones, by the formulas of `odt_sim/metrics/scores.py`. Class 0 is the blank.
 *
 * @module
 */

import { largest, mean, rows, sum } from "./losses.js";

/** @typedef {import("./litert.js").Value} Value */

/**
 * Return the metrics of answers `[examples, frames, classes]` beside labels `[examples, labels]`.
 *
 * @param {{ answers: Value, y: Value }} counted
 * @returns {Record<string, import("./answers.js").Figure>}
 */
export function ofTranscripts({ answers, y }) {
  const [examples, frames] = answers.shape;
  const likeliest = rows(answers).map((scores) => (scores.some(Number.isNaN) ? 0 : largest(scores)));
  const right = rows(y).map((row) => row.filter((label) => label !== 0));
  const distances = Array.from({ length: examples }, (_, i) =>
    editDistance(decoded(likeliest.slice(i * frames, (i + 1) * frames)), right[i]),
  );
  const labels = sum(right.map((row) => row.length));
  return {
    token_error_rate: () => (labels ? sum(distances) / labels : null),
    exact_match: () => mean(distances.map((distance) => Number(distance === 0))),
  };
}

/**
 * Return the labels of a path: without repeated classes, then without blanks.
 *
 * @param {readonly number[]} path
 */
function decoded(path) {
  return path.filter((label, frame) => label !== 0 && label !== path[frame - 1]);
}

/**
 * Return Levenshtein's distance.
 *
 * @param {readonly number[]} one
 * @param {readonly number[]} other
 */
function editDistance(one, other) {
  let row = Array.from({ length: other.length + 1 }, (_, j) => j);
  for (const [i, label] of one.entries()) {
    const next = [i + 1];
    for (const [j, right] of other.entries()) {
      next.push(Math.min(next[j] + 1, row[j + 1] + 1, row[j] + Number(label !== right)));
    }
    row = next;
  }
  return row[other.length];
}

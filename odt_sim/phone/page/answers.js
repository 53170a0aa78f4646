/**
 * The metrics of answers beside their targets, by the formulas of `odt_sim/metrics/answers.py`; null where undefined.
 *
 * @module
 */

import { cosine, largest, logProbabilities, logSoftmax, mean, rows, sum } from "./losses.js";
import { ofTranscripts } from "./transcripts.js";

/** @typedef {import("./litert.js").Value} Value */

/**
 * The answers that count, beside their targets.
 *
 * @typedef {object} Counted
 * @property {Value} answers `[positions, ...]`, or `[examples, ...]` if all count.
 * @property {Value} y
 * @property {boolean} logits Whether the answers are logits rather than probabilities.
 */

/** @typedef {(n: number) => number | null} Figure By the number in the metric's name, such as 10 of `ndcg_at_10`; NaN without. */

/**
 * Return a function for each metric of a task.
 *
 * @param {string} task
 * @param {Counted} counted
 * @returns {Record<string, Figure>}
 */
export function byMetric(task, counted) {
  const { shape } = counted.answers;
  if (task === "regression") return ofValues(counted);
  if (task === "transcription") return ofTranscripts(counted);
  if (task === "ranking") return { ...ofScores(counted), ...ofRanking(counted) };
  if (task === "multi_label" || shape[shape.length - 1] === 1) return ofScores(counted);
  return ofClasses(counted);
}

/**
 * Predicted values; Keras' formulas.
 *
 * @param {Counted} counted
 * @returns {Record<string, Figure>}
 */
function ofValues({ answers, y }) {
  const width = answers.shape.length > 1 ? answers.shape[answers.shape.length - 1] : 1;
  const targets = Array.from(y.data);
  const errors = Array.from(answers.data, (value, i) => value - targets[i]);
  const sizes = errors.map(Math.abs);
  const mse = () => mean(errors.map((error) => error ** 2));
  const [predicted, wanted] = [rows(answers), rows({ data: y.data, shape: answers.shape })];
  const logarithm = (/** @type {number} */ value) => Math.log1p(Math.max(value, 1e-7));
  return {
    mse,
    rmse: () => Math.sqrt(mse()),
    mae: (target) => mean(Number.isNaN(target) ? sizes : sizes.filter((_, i) => i % width === target)),
    mape: () => 100 * mean(sizes.map((size, i) => size / Math.max(Math.abs(targets[i]), 1e-7))),
    msle: () => mean(targets.map((target, i) => (logarithm(answers.data[i]) - logarithm(target)) ** 2)),
    log_cosh: () => mean(sizes.map((size) => size + Math.log1p(Math.exp(-2 * size)) - Math.LN2)),
    cosine: () => mean(predicted.map((row, i) => cosine(row, wanted[i]))),
    r2: () => r2(answers, y),
  };
}

/**
 * Return the mean coefficient of determination of the outputs that vary; null if none does.
 *
 * @param {Value} answers
 * @param {Value} y
 */
function r2(answers, y) {
  const [examples] = answers.shape;
  const width = answers.data.length / examples;
  const known = [];
  for (let k = 0; k < width; k += 1) {
    const targets = Array.from({ length: examples }, (_, i) => y.data[i * width + k]);
    const average = mean(targets);
    const total = sum(targets.map((value) => (value - average) ** 2));
    if (total > 0) known.push(1 - sum(targets.map((value, i) => (value - answers.data[i * width + k]) ** 2)) / total);
  }
  return known.length ? mean(known) : null;
}

/**
 * A class per example or position; NaN predicts no class.
 *
 * @param {Counted} counted
 * @returns {Record<string, Figure>}
 */
function ofClasses({ answers, y, logits }) {
  const scores = rows(answers);
  const hot = y.data.length === answers.data.length;
  const labels = hot ? rows({ data: y.data, shape: answers.shape }).map(likeliest) : Array.from(y.data);
  const predicted = scores.map(likeliest);
  const known = scores.map((row) => !row.some(Number.isNaN));
  const right = predicted.map((label, i) => known[i] && label === labels[i]);
  const positive = scores.map((row, i) => row.map((_, k) => labels[i] === k));
  const chances = () => (logits ? scores.map((row) => logSoftmax(row).map(Math.exp)) : scores);
  const confident = () => decisions(chances().map((row) => row.map((value) => value > 0.5)), positive);
  const chosen = () => decisions(scores.map((row, i) => row.map((_, k) => predicted[i] === k)), positive);
  return {
    accuracy: () => mean(right.map(Number)),
    balanced_accuracy: () => balancedAccuracy(right, labels),
    auc: () => auc(logits ? scores.map(logSoftmax) : scores, positive), // logits of different examples have no common scale
    perplexity: () => Math.exp(-mean(scores.map((row, i) => logProbabilities(row, logits)[labels[i]]))),
    iou: () => (known.every(Boolean) ? meanIou(predicted, labels) : null),
    top: (k) => (known.every(Boolean) ? mean(scores.map((row, i) => Number(place(row, labels[i]) < k))) : null),
    precision: () => confident().precision,
    recall: () => confident().recall,
    micro_f1: () => chosen().microF1,
    macro_f1: () => chosen().macroF1,
  };
}

/**
 * Scores of labels that apply or not, each decided by itself.
 *
 * @param {Counted} counted
 * @returns {Record<string, Figure>}
 */
function ofScores({ answers, y, logits }) {
  const scores = rows(answers);
  const positive = rows({ data: y.data, shape: answers.shape }).map((row) => row.map((value) => value > 0.5));
  const chosen = scores.map((row) => row.map((value) => value > (logits ? 0 : 0.5)));
  const right = scores.map((row, i) => row.map((value, k) => !Number.isNaN(value) && chosen[i][k] === positive[i][k]));
  const found = decisions(chosen, positive);
  return {
    accuracy: () => mean(right.flat().map(Number)),
    balanced_accuracy: () => balancedAccuracy(right.flat(), positive.flat().map(Number)),
    exact_match: () => mean(right.map((row) => Number(row.every(Boolean)))),
    auc: () => auc(scores, positive),
    iou: () => (scores.flat().some(Number.isNaN) ? null : meanIou(chosen.flat().map(Number), positive.flat().map(Number))),
    perplexity: () => null,
    top: () => null,
    precision: () => found.precision,
    recall: () => found.recall,
    micro_f1: () => found.microF1,
    macro_f1: () => found.macroF1,
  };
}

/**
 * Candidates that are relevant or not: a row of several scores is a query, single scores are one query.
 *
 * @param {Counted} counted
 * @returns {Record<string, Figure>}
 */
function ofRanking({ answers, y }) {
  const single = answers.shape.length !== 2 || answers.shape[1] === 1;
  const shape = single ? [1, answers.data.length] : answers.shape;
  const queries = rows({ data: answers.data, shape });
  const relevant = rows({ data: y.data, shape }).map((row) => row.map((value) => value > 0.5));
  const ranked = queries.map((row, i) => inOrder(row, relevant[i])).filter((row) => row.includes(true));
  const defined = ranked.length > 0 && queries.flat().every(Number.isFinite);
  /** @template T @param {T[][]} table */
  const candidates = (table) => table[0].map((_, k) => table.map((row) => row[k]));
  return {
    auc: () => auc(candidates(queries), candidates(relevant)),
    hit_rate: (k) => (defined ? mean(ranked.map((row) => Number(row.slice(0, k).includes(true)))) : null),
    ndcg: (k) => (defined ? ndcg(ranked, k) : null),
  };
}

/**
 * Return the mean normalized discounted cumulative gain of the first places.
 *
 * @param {boolean[][]} ranked Whether the candidate at each place is relevant, `[queries, candidates]`.
 * @param {number} k
 */
function ndcg(ranked, k) {
  const gains = ranked[0].map((_, at) => (at < k ? 1 / Math.log2(at + 2) : 0));
  const gained = ranked.map((row) => sum(gains.filter((_, at) => row[at])));
  const best = ranked.map((row) => sum(gains.slice(0, row.filter(Boolean).length)));
  return mean(gained.map((gain, i) => gain / best[i]));
}

/**
 * Return whether the candidate at each place is relevant, the highest score first; of equal scores the irrelevant first.
 *
 * @param {number[]} scores
 * @param {boolean[]} relevant
 */
function inOrder(scores, relevant) {
  const order = scores.map((_, k) => k).sort((a, b) => scores[b] - scores[a] || Number(relevant[a]) - Number(relevant[b]));
  return order.map((k) => relevant[k]);
}

/**
 * Return precision, recall and F1 of decisions, `[examples, labels]`; 0 where there are none.
 *
 * @param {boolean[][]} chosen
 * @param {boolean[][]} positive
 */
function decisions(chosen, positive) {
  const counts = chosen[0].map((_, k) => ({
    right: chosen.filter((row, i) => row[k] && positive[i][k]).length,
    chosen: chosen.filter((row) => row[k]).length,
    positive: positive.filter((row) => row[k]).length,
  }));
  const [right, yes, all] = /** @type {const} */ (["right", "chosen", "positive"]).map((key) => sum(counts.map((own) => own[key])));
  return {
    precision: right / Math.max(yes, 1),
    recall: right / Math.max(all, 1),
    microF1: (2 * right) / Math.max(yes + all, 1),
    macroF1: mean(counts.map((own) => (2 * own.right) / Math.max(own.chosen + own.positive, 1))),
  };
}

/**
 * Return the mean recall of the classes that occur.
 *
 * @param {boolean[]} right
 * @param {number[]} labels
 */
function balancedAccuracy(right, labels) {
  /** @type {Map<number, number[]>} */
  const byClass = new Map();
  labels.forEach((label, i) => {
    const own = byClass.get(label) ?? [];
    own.push(Number(right[i]));
    byClass.set(label, own);
  });
  return mean([...byClass.values()].map(mean));
}

/**
 * Return the mean over the classes that occur of intersection / union.
 *
 * @param {number[]} predicted
 * @param {number[]} labels
 */
function meanIou(predicted, labels) {
  const shares = [...new Set([...predicted, ...labels])].map((label) => {
    const inBoth = predicted.filter((value, i) => value === label && labels[i] === label).length;
    return inBoth / predicted.filter((value, i) => value === label || labels[i] === label).length;
  });
  return mean(shares);
}

/**
 * Return the mean area under the ROC curve of one class against the rest, over the classes of some but not all examples.
 *
 * @param {number[][]} scores `[examples, classes]`.
 * @param {boolean[][]} positive `[examples, classes]`.
 */
function auc(scores, positive) {
  if (!scores.every((row) => row.every(Number.isFinite))) return null;
  const areas = scores[0].map((_, k) => areaOf(scores.map((row) => row[k]), positive.map((row) => row[k])));
  const known = areas.filter((area) => area !== null);
  return known.length ? mean(known) : null;
}

/**
 * Return the probability that a positive example has a higher score than a negative one; ties count half.
 *
 * @param {number[]} scores
 * @param {boolean[]} positive
 */
function areaOf(scores, positive) {
  const positives = positive.filter(Boolean).length;
  if (!positives || positives === scores.length) return null;
  const order = scores.map((_, i) => i).sort((a, b) => scores[a] - scores[b]);
  let over = 0;
  for (let first = 0, last = 0; first < order.length; first = last) {
    while (last < order.length && scores[order[last]] === scores[order[first]]) last += 1;
    for (let i = first; i < last; i += 1) over += positive[order[i]] ? first + last : 0;
  }
  return (over - positives ** 2) / (2 * positives * (scores.length - positives));
}

/**
 * Return the position of the largest number; the first NaN counts as the largest, as in numpy.
 *
 * @param {readonly number[]} row
 */
function likeliest(row) {
  const unknown = row.findIndex(Number.isNaN);
  return unknown >= 0 ? unknown : largest(row);
}

/**
 * Return how many scores are above that of a label.
 *
 * @param {number[]} row
 * @param {number} label
 */
function place(row, label) {
  return row.filter((value) => value > row[label]).length;
}

/**
 * The figures of one device, from the outputs of its model: the same as `odt_sim/metrics/device.py` computes, in float64.
 *
 * @module
 */

import { product } from "./frames.js";

const EPSILON = 1e-7; // as in Keras: a probability of zero has a finite loss
const MOST_TARGETS = 10; // targets of a regression that get an error of their own
const PLACES = 10; // of a ranking, by which NDCG and hit rate are computed

/** @typedef {import("./litert.js").Value} Value */

/**
 * What the outputs and the targets mean.
 *
 * @typedef {object} Objective
 * @property {string} loss The name of the loss.
 * @property {boolean} from_logits Whether the outputs are logits rather than probabilities.
 * @property {number} delta The error at which Huber's loss turns from quadratic to linear.
 * @property {string} task What the outputs are: a task of `odt_sim/metrics/tasks.py`.
 */

/**
 * Return the mean loss of examples.
 *
 * @param {Value} outputs `[examples, ...]`.
 * @param {Value} y `[examples, ...]` labels, one per row of the outputs, or targets of the outputs' shape.
 * @param {Objective} objective
 * @returns {number}
 */
export function meanLoss(outputs, y, objective) {
  const { loss } = objective;
  if (loss === "sparse_categorical_crossentropy") {
    const logarithms = logProbabilities(outputs, objective.from_logits);
    return -mean(logarithms.map((row, i) => row[y.data[i]]));
  }
  const own = rows(outputs);
  const targets = rows({ data: y.data, shape: outputs.shape });
  if (loss === "categorical_crossentropy") {
    const logarithms = logProbabilities(outputs, objective.from_logits);
    return mean(logarithms.map((row, i) => -sum(row.map((value, k) => targets[i][k] * value))));
  }
  return mean(own.map((row, i) => rowLoss(row, targets[i], objective)));
}

/**
 * Return the figures of a device.
 *
 * @param {Value} outputs See `meanLoss`.
 * @param {Value} y
 * @param {Objective} objective
 * @returns {Record<string, number>} Undefined figures are absent.
 */
export function figures(outputs, y, objective) {
  const all = { ...ofTask(outputs, y, objective), loss: meanLoss(outputs, y, objective), examples: outputs.shape[0] };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== null));
}

/**
 * @param {Value} outputs
 * @param {Value} y
 * @param {Objective} objective
 * @returns {Record<string, number | null>}
 */
function ofTask(outputs, y, objective) {
  switch (objective.task) {
    case "ranking":
      return ranking(outputs, y);
    case "regression":
      return regression(outputs, y);
    case "other":
      return {};
    default:
      return classification(outputs, y, objective);
  }
}

/**
 * @param {number[]} row
 * @param {number[]} target
 * @param {Objective} objective
 */
function rowLoss(row, target, { loss, from_logits, delta }) {
  const errors = row.map((value, k) => Math.abs(value - target[k]));
  switch (loss) {
    case "cosine_similarity":
      return -sum(row.map((value, k) => value * target[k])) / (norm(row) * norm(target));
    case "huber":
      return mean(errors.map((error) => (error <= delta ? 0.5 * error ** 2 : delta * error - 0.5 * delta ** 2)));
    case "mean_absolute_error":
      return mean(errors);
    case "mean_squared_error":
      return mean(errors.map((error) => error ** 2));
    case "kl_divergence": {
      const wanted = target.map((value) => clip(value, EPSILON, 1));
      return sum(wanted.map((value, k) => value * Math.log(value / clip(row[k], EPSILON, 1))));
    }
    case "binary_crossentropy":
      return mean(row.map((value, k) => binaryLoss(value, target[k], from_logits)));
    default:
      throw new Error(`This page cannot compute the loss ${loss}.`);
  }
}

/**
 * @param {number} output
 * @param {number} target
 * @param {boolean} fromLogits
 */
function binaryLoss(output, target, fromLogits) {
  if (fromLogits) return Math.max(output, 0) - output * target + Math.log1p(Math.exp(-Math.abs(output)));
  return -target * logProbability(output) - (1 - target) * logProbability(1 - output);
}

/**
 * @param {Value} outputs
 * @param {Value} y
 * @returns {Record<string, number | null>}
 */
function regression(outputs, y) {
  const errors = Array.from(outputs.data, (value, i) => value - y.data[i]);
  const width = outputs.shape[outputs.shape.length - 1];
  const known = { mse: mean(errors.map((error) => error ** 2)), mae: mean(errors.map(Math.abs)), r2: r2(outputs, y) };
  if (outputs.shape.length !== 2 || width === 1 || width > MOST_TARGETS) return known;
  const each = Array.from({ length: width }, (_, k) => errors.filter((_error, i) => i % width === k).map(Math.abs));
  return { ...known, ...Object.fromEntries(each.map((own, k) => [`mae_${k}`, mean(own)])) };
}

/**
 * Return the figures of candidates that are relevant or not: a row of several scores is a query, single scores are one query.
 *
 * @param {Value} outputs
 * @param {Value} y
 * @returns {Record<string, number | null>}
 */
function ranking(outputs, y) {
  const single = outputs.shape.length !== 2 || outputs.shape[1] === 1;
  const shape = single ? [1, outputs.data.length] : outputs.shape;
  const queries = rows({ data: outputs.data, shape });
  const relevant = rows({ data: y.data, shape }).map((row) => row.map((value) => value > 0.5));
  /** @template T @param {T[][]} table */
  const candidates = (table) => table[0].map((_, k) => table.map((row) => row[k]));
  return { ...firstPlaces(queries, relevant), auc: auc(candidates(queries), candidates(relevant)) };
}

/**
 * Return NDCG and hit rate of the first places, over the queries with a relevant candidate.
 *
 * @param {number[][]} queries Scores, `[queries, candidates]`.
 * @param {boolean[][]} relevant `[queries, candidates]`.
 */
function firstPlaces(queries, relevant) {
  const ranked = queries.map((row, i) => inOrder(row, relevant[i])).filter((row) => row.includes(true));
  if (!ranked.length || !queries.flat().every(Number.isFinite)) return { ndcg_at_10: null, hit_rate_at_10: null };
  const gains = ranked[0].map((_, place) => (place < PLACES ? 1 / Math.log2(place + 2) : 0));
  const gained = ranked.map((row) => sum(gains.filter((_, place) => row[place])));
  const best = ranked.map((row) => sum(gains.slice(0, row.filter(Boolean).length)));
  return {
    ndcg_at_10: mean(gained.map((gain, i) => gain / best[i])),
    hit_rate_at_10: mean(ranked.map((row) => Number(row.slice(0, PLACES).includes(true)))),
  };
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
 * @param {Value} outputs
 * @param {Value} y
 * @param {Objective} objective
 * @returns {Record<string, number | null>}
 */
function classification(outputs, y, { task, from_logits }) {
  const own = rows(outputs);
  const classes = outputs.shape[outputs.shape.length - 1];
  if (task === "multi_label" || classes === 1) {
    const labels = Array.from(y.data, (value) => (value > 0.5 ? 1 : 0));
    const threshold = from_logits ? 0 : 0.5;
    const right = own.flat().map((value, i) => !Number.isNaN(value) && value > threshold === (labels[i] === 1));
    const positive = own.map((row, i) => row.map((_, k) => labels[i * classes + k] === 1));
    const chosen = own.map((row) => row.map((value) => value > threshold));
    if (task === "multi_label") return severalLabels(right, chosen, positive, own);
    const found = scored(right, labels, own, positive);
    return task === "segmentation" ? segmented(found, own, chosen.flat().map(Number), labels) : found;
  }
  const hot = y.data.length === outputs.data.length;
  const labels = hot ? rows({ data: y.data, shape: outputs.shape }).map(largest) : Array.from(y.data);
  const right = own.map((row, i) => !row.some(Number.isNaN) && largest(row) === labels[i]);
  const scores = from_logits ? own.map(logSoftmax) : own; // logits of different examples have no common scale
  const found = scored(right, labels, scores, own.map((row, i) => row.map((_, k) => labels[i] === k)));
  if (task === "segmentation") return segmented(found, own, own.map(largest), labels);
  if (outputs.shape.length < 3) return found;
  const logarithms = logProbabilities(outputs, from_logits);
  return { ...found, perplexity: Math.exp(-mean(logarithms.map((row, i) => row[labels[i]]))) };
}

/**
 * Return the figures of images with a class for each pixel: in place of the AUC the mean IoU over the classes that occur.
 *
 * @param {Record<string, number | null>} found
 * @param {number[][]} outputs
 * @param {number[]} predicted
 * @param {number[]} labels
 */
function segmented({ accuracy, balanced_accuracy }, outputs, predicted, labels) {
  const shares = [...new Set([...predicted, ...labels])].map((label) => {
    const inBoth = predicted.filter((value, i) => value === label && labels[i] === label).length;
    return inBoth / predicted.filter((value, i) => value === label || labels[i] === label).length;
  });
  return { iou: outputs.some((row) => row.some(Number.isNaN)) ? null : mean(shares), accuracy, balanced_accuracy };
}

/**
 * @param {boolean[]} right Whether each label of each example is decided right.
 * @param {boolean[][]} chosen `[examples, labels]`.
 * @param {boolean[][]} positive `[examples, labels]`.
 * @param {number[][]} scores `[examples, labels]`.
 */
function severalLabels(right, chosen, positive, scores) {
  const width = scores[0].length;
  const counts = scores[0].map((_, k) => ({
    right: chosen.filter((row, i) => row[k] && positive[i][k]).length,
    marked: chosen.filter((row) => row[k]).length + positive.filter((row) => row[k]).length,
  }));
  /** @param {{ right: number, marked: number }} count */
  const f1 = (count) => (2 * count.right) / Math.max(count.marked, 1);
  return {
    micro_f1: f1({ right: sum(counts.map((count) => count.right)), marked: sum(counts.map((count) => count.marked)) }),
    macro_f1: mean(counts.map(f1)),
    exact_match: mean(scores.map((_, i) => Number(right.slice(i * width, (i + 1) * width).every(Boolean)))),
    accuracy: mean(right.map(Number)),
    auc: auc(scores, positive),
  };
}

/**
 * @param {boolean[]} right
 * @param {number[]} labels
 * @param {number[][]} scores
 * @param {boolean[][]} positive
 */
function scored(right, labels, scores, positive) {
  return {
    accuracy: mean(right.map(Number)),
    balanced_accuracy: balancedAccuracy(right, labels),
    auc: auc(scores, positive),
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
  labels.forEach((label, i) => byClass.set(label, [...(byClass.get(label) ?? []), Number(right[i])]));
  return byClass.size ? mean([...byClass.values()].map(mean)) : null;
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
 * Return the mean coefficient of determination of the outputs that vary; null if none does.
 *
 * @param {Value} outputs
 * @param {Value} y
 */
function r2(outputs, y) {
  const [examples] = outputs.shape;
  const width = outputs.data.length / examples;
  const known = [];
  for (let k = 0; k < width; k += 1) {
    const targets = Array.from({ length: examples }, (_, i) => y.data[i * width + k]);
    const average = mean(targets);
    const total = sum(targets.map((value) => (value - average) ** 2));
    if (total > 0) known.push(1 - sum(targets.map((value, i) => (value - outputs.data[i * width + k]) ** 2)) / total);
  }
  return known.length ? mean(known) : null;
}

/**
 * @param {Value} outputs
 * @param {boolean} fromLogits
 */
function logProbabilities(outputs, fromLogits) {
  return rows(outputs).map((row) => (fromLogits ? logSoftmax(row) : row.map(logProbability)));
}

/** @param {number[]} row */
function logSoftmax(row) {
  const top = row.reduce((a, b) => Math.max(a, b));
  const logarithm = Math.log(sum(row.map((value) => Math.exp(value - top))));
  return row.map((value) => value - top - logarithm);
}

/** @param {number} value */
function logProbability(value) {
  return Math.log(clip(value, EPSILON, 1 - EPSILON));
}

/**
 * Return the rows along the last axis.
 *
 * @param {Value} value
 * @returns {number[][]}
 */
function rows({ data, shape }) {
  const width = shape[shape.length - 1];
  return Array.from({ length: product(shape.slice(0, -1)) }, (_, i) => Array.from(data.slice(i * width, (i + 1) * width)));
}

/** @param {number[]} row */
function largest(row) {
  return row.reduce((best, value, i) => (value > row[best] ? i : best), 0);
}

/** @param {number[]} row */
function norm(row) {
  return Math.max(Math.sqrt(sum(row.map((value) => value ** 2))), EPSILON);
}

/**
 * @param {number} value
 * @param {number} least
 * @param {number} most
 */
function clip(value, least, most) {
  return Math.min(Math.max(value, least), most);
}

/** @param {number[]} values */
function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

/** @param {number[]} values */
function mean(values) {
  return sum(values) / values.length;
}

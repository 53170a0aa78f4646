/**
 * The losses of examples, by the formulas of `odt_sim/metrics/losses.py`, in float64.
 *
 * @module
 */

import { product } from "./tensors.js";

const EPSILON = 1e-7; // as in Keras: a probability of zero has a finite loss

/** @typedef {import("./litert.js").Value} Value */

/**
 * What an output and its target mean, and which figures there are of them; see `odt_sim/phone/routes.py`.
 *
 * @typedef {object} Output
 * @property {string} name Empty for a model with one output.
 * @property {string} answer The name of the output of `infer`.
 * @property {string} target The name of the target of `train`.
 * @property {string | null} mask The name of the output of `infer` that is 1 where a position counts; null if all do.
 * @property {string | null} loss The name of the loss; null for a function of the author's own.
 * @property {number} loss_weight The factor of its loss in the sum over the outputs.
 * @property {boolean} from_logits Whether the answers are logits rather than probabilities.
 * @property {number} delta The error at which Huber's loss turns from quadratic to linear.
 * @property {string} task What the answers are: a task of `odt_sim/metrics/tasks.py`.
 * @property {string[]} metrics The names of its metrics.
 * @property {number | null} classes The number of classes; null for values.
 * @property {number} width The numbers along the last axis of the answers.
 * @property {number | null} ignore_class The label whose positions do not count; null for none.
 */

/**
 * Return each example's loss: the mean over its positions that count, 0 without any.
 *
 * @param {Value} answers `[examples, ...]`.
 * @param {Value} y `[examples, ...]` labels, one per row of the answers, or targets of the answers' shape.
 * @param {Output} output
 * @param {readonly boolean[] | null} counts Whether each position of each example counts; null if all do.
 * @returns {number[]} `[examples]`.
 */
export function exampleLosses(answers, y, output, counts) {
  const [examples] = answers.shape;
  const answered = rows(answers);
  const inExample = answered.length / examples;
  const inPosition = counts ? answered.length / counts.length : 1;
  const counted = answered.map((_, i) => !counts || counts[Math.floor(i / inPosition)]);
  const lossOf = rowLoss(y, answers, output);
  const losses = answered.map((row, i) => (counted[i] ? lossOf(row, i) : 0));
  return Array.from({ length: examples }, (_, i) => {
    const own = counted.slice(i * inExample, (i + 1) * inExample).filter(Boolean).length;
    return sum(losses.slice(i * inExample, (i + 1) * inExample)) / Math.max(own, 1);
  });
}

/**
 * Return the loss of a row of answers by its number.
 *
 * @param {Value} y
 * @param {Value} answers
 * @param {Output} output
 * @returns {(row: number[], i: number) => number}
 */
function rowLoss(y, answers, output) {
  const { loss, from_logits } = output;
  if (loss === "sparse_categorical_crossentropy") return (row, i) => -logProbabilities(row, from_logits)[y.data[i]];
  const targets = rows({ data: y.data, shape: answers.shape });
  if (loss === "categorical_crossentropy") {
    return (row, i) => -sum(logProbabilities(row, from_logits).map((value, k) => targets[i][k] * value));
  }
  return (row, i) => lossOfValues(row, targets[i], output);
}

/**
 * @param {number[]} row
 * @param {number[]} target
 * @param {Output} output
 */
function lossOfValues(row, target, { loss, from_logits, delta }) {
  const errors = row.map((value, k) => Math.abs(value - target[k]));
  switch (loss) {
    case "cosine_similarity":
      return -cosine(row, target);
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
      throw new Error(`This page cannot compute the loss ${loss}; export the model again so that its file returns the loss.`);
  }
}

/**
 * @param {number} answer
 * @param {number} target
 * @param {boolean} fromLogits
 */
function binaryLoss(answer, target, fromLogits) {
  if (fromLogits) return Math.max(answer, 0) - answer * target + Math.log1p(Math.exp(-Math.abs(answer)));
  return -target * logProbability(answer) - (1 - target) * logProbability(1 - answer);
}

/**
 * Return the logarithms of a row's probabilities.
 *
 * @param {number[]} row
 * @param {boolean} fromLogits
 */
export function logProbabilities(row, fromLogits) {
  return fromLogits ? logSoftmax(row) : row.map(logProbability);
}

/** @param {number[]} row */
export function logSoftmax(row) {
  const top = row.reduce((a, b) => Math.max(a, b));
  const logarithm = Math.log(sum(row.map((value) => Math.exp(value - top))));
  return row.map((value) => value - top - logarithm);
}

/** @param {number} value */
function logProbability(value) {
  return Math.log(clip(value, EPSILON, 1 - EPSILON));
}

/**
 * Return the cosine of the angle between two vectors.
 *
 * @param {number[]} row
 * @param {number[]} other
 */
export function cosine(row, other) {
  return sum(row.map((value, k) => value * other[k])) / (norm(row) * norm(other));
}

/** @param {number[]} row */
function norm(row) {
  return Math.max(Math.sqrt(sum(row.map((value) => value ** 2))), EPSILON);
}

/**
 * Return the position of the largest number, the first of equal ones.
 *
 * @param {ArrayLike<number>} values
 */
export function largest(values) {
  let best = 0;
  for (let index = 1; index < values.length; index++) if (values[index] > values[best]) best = index;
  return best;
}

/**
 * Return the rows along the last axis; each number is a row if there is no other axis.
 *
 * @param {Value} value
 * @returns {number[][]}
 */
export function rows({ data, shape }) {
  const width = shape.length > 1 ? shape[shape.length - 1] : 1;
  return Array.from({ length: product(shape) / width }, (_, i) => Array.from(data.subarray(i * width, (i + 1) * width)));
}

/**
 * @param {number} value
 * @param {number} least
 * @param {number} most
 */
function clip(value, least, most) {
  return Math.min(Math.max(value, least), most);
}

/** @param {readonly number[]} values */
export function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

/** @param {readonly number[]} values */
export function mean(values) {
  return sum(values) / values.length;
}

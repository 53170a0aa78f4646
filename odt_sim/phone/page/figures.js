/**
 * The figures of one device, from the answers of its model: the same as `odt_sim/metrics/device.py` computes, in float64.
 *
 * @module
 */

import { byMetric } from "./answers.js";
import { exampleLosses, mean, sum } from "./losses.js";
import { gathered } from "./tensors.js";

/** @typedef {import("./litert.js").Numbers} Numbers */
/** @typedef {import("./litert.js").Value} Value */
/** @typedef {import("./losses.js").Output} Output */

/**
 * What a model answers for examples, `[examples, ...]` each.
 *
 * @typedef {object} Answered
 * @property {Record<string, Value>} answers The outputs and masks of `infer`, by name.
 * @property {Record<string, Value>} examples The targets among them, by name.
 * @property {Record<string, Numbers>} losses What the signature `loss` returns: `losses`, and `losses_<output>` of several
 *   outputs; empty if the file has none.
 */

/**
 * Return the figures of a device; of several outputs they have the output's name, and `loss` is their weighted sum.
 *
 * @param {readonly Output[]} outputs
 * @param {Answered} answered
 * @returns {Record<string, number>} Undefined figures are absent.
 */
export function figures(outputs, answered) {
  const [{ target }] = outputs;
  /** @type {Record<string, number>} */
  const found = { examples: answered.examples[target].shape[0] };
  const joint = isJoint(outputs, answered);
  const losses = joint ? [] : outputs.map((output) => outputLoss(output, answered));
  if (joint) found.loss = jointLoss(answered);
  else if (losses.some((loss) => loss !== null)) found.loss = weighted(outputs, losses);
  for (const [i, output] of outputs.entries()) {
    const own = outputFigures(output, answered);
    if (outputs.length > 1 && !joint) own.loss = losses[i];
    for (const [metric, value] of Object.entries(own)) {
      if (value !== null) found[output.name ? `${metric}_${output.name}` : metric] = value;
    }
  }
  return found;
}

/**
 * Return the mean loss of examples, the weighted sum over the outputs of which a position counts.
 *
 * @param {readonly Output[]} outputs
 * @param {Answered} answered
 */
export function totalLoss(outputs, answered) {
  if (isJoint(outputs, answered)) return jointLoss(answered);
  return weighted(outputs, outputs.map((output) => outputLoss(output, answered)));
}

/** @param {Answered} answered */
function jointLoss({ losses }) {
  return mean(Array.from(losses.losses));
}

/**
 * Return the sum of the losses of outputs by their weights; a single one is the model's.
 *
 * @param {readonly Output[]} outputs
 * @param {readonly (number | null)[]} losses
 */
function weighted(outputs, losses) {
  if (outputs.length === 1) return losses[0] ?? 0;
  return sum(outputs.map(({ loss_weight }, i) => loss_weight * (losses[i] ?? 0)));
}

/**
 * Return whether the losses of examples are no sum over several outputs.
 *
 * @param {readonly Output[]} outputs
 * @param {Answered} answered
 */
function isJoint(outputs, { losses }) {
  return outputs.length > 1 && Object.keys(losses).join() === "losses";
}

/**
 * Return the mean loss of the examples, or of their positions that count.
 *
 * @param {Output} output
 * @param {Answered} answered
 * @returns {number | null} null if no position counts, or if only training steps compute the loss.
 */
function outputLoss(output, answered) {
  if (output.loss === "none") return null;
  const [answers, y] = [answered.answers[output.answer], answered.examples[output.target]];
  const counts = counting(output, answered)?.counts ?? null;
  const returned = answered.losses[output.name ? `losses_${output.name}` : "losses"];
  const losses = returned ? Array.from(returned) : exampleLosses(answers, y, output, counts);
  if (!counts) return mean(losses);
  const inExample = counts.length / losses.length;
  const counted = losses.map((_, i) => counts.slice(i * inExample, (i + 1) * inExample).filter(Boolean).length);
  return sum(counted) ? sum(losses.map((loss, i) => loss * counted[i])) / sum(counted) : null;
}

/**
 * Return which positions of an output count: by Keras' mask, and by the label that its loss ignores; null if all do.
 *
 * @param {Output} output
 * @param {Answered} answered
 * @returns {{ counts: boolean[], shape: readonly number[] } | null} In the shape of the mask, or else of the labels.
 */
function counting({ mask, ignore_class, target }, { answers, examples }) {
  const y = examples[target];
  const masked = mask === null ? null : answers[mask];
  if (ignore_class === null) {
    return masked && { counts: Array.from(masked.data, Boolean), shape: masked.shape.slice(0, 2) };
  }
  const inPosition = masked ? y.data.length / masked.data.length : 1;
  const counts = Array.from(y.data, (label, i) => {
    return label !== ignore_class && (!masked || masked.data[Math.floor(i / inPosition)] !== 0);
  });
  return { counts, shape: y.shape };
}

/**
 * @param {Output} output
 * @param {Answered} answered
 * @returns {Record<string, number | null>} All but the loss.
 */
function outputFigures(output, answered) {
  const counted = countedOf(output, answered);
  if (output.task === "other" || counted.answers.data.length === 0) return {};
  const known = byMetric(output.task, counted);
  const wanted = output.metrics.filter((metric) => metric !== "loss");
  return Object.fromEntries(
    wanted.map((metric) => {
      const [, name, n] = /** @type {RegExpExecArray} */ (/^(.+?)(?:(?:_at)?_(\d+))?$/.exec(metric));
      return [metric, known[name](n === undefined ? NaN : Number(n))];
    }),
  );
}

/**
 * @param {Output} output
 * @param {Answered} answered
 * @returns {import("./answers.js").Counted}
 */
function countedOf(output, answered) {
  const [answers, y] = [answered.answers[output.answer], answered.examples[output.target]];
  const positions = counting(output, answered);
  if (!positions) return { answers, y, logits: output.from_logits };
  const { counts, shape } = positions;
  const chosen = counts.flatMap((own, i) => (own ? [i] : []));
  const those = (/** @type {Value} */ value) => {
    return gathered({ data: value.data, shape: [counts.length, ...value.shape.slice(shape.length)] }, chosen);
  };
  return { answers: those(answers), y: those(y), logits: output.from_logits };
}

/**
 * The three ways to make examples: drawings, recorded motion, and rows of a file.
 *
 * @module
 */

import { action, element, Notice } from "./dom.js";
import { Drawing, paintPicture } from "./drawing.js";
import { counted, percent } from "./format.js";
import { largest } from "./losses.js";
import { record } from "./motion.js";
import { readRows } from "./rows.js";

/** @typedef {import("./training.js").Trainer} Trainer */
/** @typedef {(x: readonly number[], y: readonly number[], label: string) => void} Add */

/**
 * @typedef {object} Source
 * @property {HTMLElement} element By which a user makes examples.
 * @property {() => void} refresh Shows again what depends on the model's weights.
 */

const RECORDING_SECONDS = 10;
const DELAY_SECONDS = 3; // to put the phone into a pocket

/**
 * Return what makes examples for a model.
 *
 * @param {Trainer} trainer
 * @param {Add} add Takes each example; it is stored by `done`.
 * @param {() => Promise<void>} done Called when all examples of an action were added.
 * @returns {Source}
 */
export function sourceOf(trainer, add, done) {
  const { source } = trainer.description;
  const rows = files(trainer, add, done);
  if (source === "drawing") {
    const { element: board, refresh } = drawings(trainer, add, done);
    return { element: element("div", {}, board, rows), refresh };
  }
  const nothing = () => {};
  if (source === "motion") return { element: element("div", {}, motions(trainer, add, done), rows), refresh: nothing };
  return { element: rows, refresh: nothing };
}

/**
 * @param {Trainer} trainer
 * @param {Add} add
 * @param {() => Promise<void>} done
 * @returns {Source}
 */
function drawings(trainer, add, done) {
  const { labels, shades } = trainer.description;
  const [paper, ink] = shades;
  const [height, width] = trainer.shape;
  const notice = new Notice();
  const pixels = element("canvas", { class: "pixels", role: "img", "aria-label": "What the model gets" });
  const reading = element("p", { class: "muted", id: "reading" });
  const refresh = () => void show().catch((error) => notice.show(String(error), "failed"));
  const drawing = new Drawing(refresh);
  const seen = () => drawing.picture(height, width).map((value) => paper + (ink - paper) * value);

  async function show() {
    paintPicture(pixels, drawing.empty ? [] : seen(), height, width, shades);
    reading.textContent = "Draw as large as the canvas.";
    if (drawing.empty) return;
    const output = await trainer.answer(seen());
    if (drawing.empty) return; // cleared while the model answered
    reading.textContent = `The model reads ${labels[trainer.classOf(output)]}${certainty(trainer, output)}.`;
  }

  /** @param {number} label */
  async function keep(label) {
    if (drawing.empty) throw new Error("Draw something first, then tap what it is.");
    notice.hide();
    add(seen(), trainer.target(label), labels[label]);
    drawing.clear();
    await done();
  }

  const buttons = labels.map((text, label) => {
    return element("button", { type: "button", "data-label": text, onclick: action(notice, () => keep(label)) }, text);
  });
  const clear = element("button", { type: "button", class: "plain", onclick: () => drawing.clear() }, "Clear");
  const beside = element(
    "div",
    { class: "beside" },
    element("div", { class: "seen" }, pixels, reading),
    element("p", { class: "muted" }, "What is it? Tap its label to keep it as an example."),
    element("div", { class: "labels" }, ...buttons),
    clear,
    notice.element,
  );
  drawing.clear();
  return { element: element("div", { class: "board" }, drawing.canvas, beside), refresh };
}

/**
 * @param {Trainer} trainer
 * @param {import("./litert.js").Numbers} output Logits or probabilities of one example.
 * @returns {string} The probability of the largest, in brackets.
 */
function certainty({ description }, output) {
  if (output.length === 1) return "";
  const values = Array.from(output);
  const best = values[largest(values)];
  const sum = values.reduce((total, value) => total + Math.exp(value - best), 0);
  return ` (${percent(description.outputs[0].from_logits ? 1 / sum : best)})`;
}

/**
 * @param {Trainer} trainer
 * @param {Add} add
 * @param {() => Promise<void>} done
 */
function motions(trainer, add, done) {
  const { labels } = trainer.description;
  const notice = new Notice();
  const choice = element("select", { id: "activity" }, ...labels.map((text, label) => element("option", { value: String(label) }, text)));
  const start = action(notice, async () => {
    const label = Number(choice.value);
    const windows = await record(trainer.shape, RECORDING_SECONDS, DELAY_SECONDS, (text) => notice.show(text));
    for (const window of windows) add(window, trainer.target(label), labels[label]);
    notice.show(`Kept ${counted(windows.length, "window")} of ${labels[label]}.`, "good");
    await done();
  });
  return element(
    "div",
    {},
    element("p", {}, `Choose what you do, start, and move: ${RECORDING_SECONDS} seconds are recorded, after ${DELAY_SECONDS}.`),
    element(
      "div",
      { class: "row" },
      element("label", { for: "activity" }, "Class"),
      choice,
      element("button", { class: "primary", type: "button", onclick: start }, "Record"),
    ),
    notice.element,
  );
}

/**
 * @param {Trainer} trainer
 * @param {Add} add
 * @param {() => Promise<void>} done
 */
function files(trainer, add, done) {
  const notice = new Notice();
  const { form } = trainer;
  const take = action(notice, async () => {
    const [file] = chooser.files ?? [];
    if (!file) return;
    chooser.value = ""; // the same file may be chosen again, changed
    const rows = (await readRows(file)).map((row) => form.parts(row));
    for (const { x, y } of rows) add(x, y, labelOf(trainer, y));
    notice.show(`Kept ${counted(rows.length, "example")} of ${file.name}.`, "good");
    await done();
  });
  const chooser = element("input", { type: "file", id: "rows", accept: ".csv,.npy,.txt", onchange: take });
  return element(
    "div",
    {},
    element("p", {}, `A .csv or .npy file has one row per example: ${form.text}. It is read here and sent nowhere.`),
    element("div", { class: "row" }, element("label", { class: "file" }, "Choose a file", chooser)),
    notice.element,
  );
}

/**
 * @param {Trainer} trainer
 * @param {readonly number[]} target
 * @returns {string} The class of an example; empty for values.
 */
function labelOf({ description: { labels } }, target) {
  if (labels.length === 0) return "";
  return labels[target.length === labels.length ? largest(target) : target[0]] ?? "";
}

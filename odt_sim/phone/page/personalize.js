/**
 * Personalizes: trains the model on the user's own examples. Everything stays in this browser.
 *
 * @module
 */

import { action, element, Notice, reason, table } from "./dom.js";
import { paintPicture } from "./drawing.js";
import { Examples } from "./examples.js";
import { counted, number, percent } from "./format.js";
import { safetensors, save, weightsOf } from "./safetensors.js";
import { sourceOf } from "./sources.js";
import { Store } from "./store.js";
import { Trainer } from "./training.js";

/** @typedef {import("./subject.js").Subject} Subject */
/** @typedef {import("./training.js").State} State */

/**
 * The figures after a part of the training.
 *
 * @typedef {object} Row
 * @property {number} seconds Of training so far; 0 before it.
 * @property {number} steps So far.
 * @property {number | null} loss The mean over the part's steps; null before the first.
 * @property {(number | null)[]} scores The figures of the description's `scores` on the examples that are held out.
 * @property {number} held How many these are.
 */

/** @typedef {{ state: State, history: Row[], saved: string }} Kept */

const INTERVALS = [10, 30, 60]; // seconds of training between two figures
const SHOWN_PICTURES = 60;
const REMEDY = "The previous weights are restored; scale the inputs, or export the model with a lower learning rate.";

/** @param {Subject} subject */
export async function personalizeSection(subject) {
  const personal = new Personal(new Trainer(await subject.compile(), subject.description));
  await personal.begin();
  return personal.element();
}

/** One user's examples, weights and figures, and the elements that show them. */
class Personal {
  /** @param {Trainer} trainer */
  constructor(trainer) {
    this.trainer = trainer;
    this.store = new Store(trainer.description.fingerprint);
    this.examples = new Examples();
    this.source = sourceOf(trainer, (x, y, label) => this.examples.add(x, y, label), () => this.changed());
    /** @type {Row[]} */
    this.history = [];
    this.running = false;
    this.notice = new Notice();
    this.keeping = new Notice();
    this.list = element("div");
    this.figures = element("div");
    const options = INTERVALS.map((seconds) => element("option", { value: String(seconds) }, `${seconds} s`));
    this.interval = element("select", { id: "interval" }, ...options);
    this.start = element("button", { class: "primary", type: "button", onclick: () => this.toggle() }, "Train");
    const undo = action(this.keeping, () => this.undo());
    this.last = element("button", { class: "plain", type: "button", onclick: undo }, "Remove the last");
  }

  /** Read what the browser kept. */
  async begin() {
    this.initial = await this.trainer.state();
    try {
      this.examples = new Examples(await this.store.get("examples"));
      /** @type {Kept | undefined} */
      const kept = await this.store.get("weights");
      if (!kept) return;
      if (!finite(kept.state)) throw new Error("The kept weights are not finite; the model has the server's weights instead.");
      await this.trainer.restore(kept.state);
      this.history = kept.history.filter(({ scores }) => scores); // earlier versions of this page kept other figures
      const seconds = Math.round(kept.history.at(-1)?.seconds ?? 0);
      this.keeping.show(`Restored your weights of ${kept.saved}, after ${counted(seconds, "second")} of training.`, "good");
    } catch (error) {
      this.keeping.show(reason(error), "failed");
    }
  }

  element() {
    this.show();
    return element(
      "div",
      {},
      element("p", {}, "Train the model on your own examples. They and the weights stay in this browser."),
      element("h2", {}, "Your examples"),
      this.source.element,
      this.list,
      element("div", { class: "row" }, this.last),
      element("h2", {}, "Training"),
      element("div", { class: "row" }, element("label", { for: "interval" }, "Metrics every"), this.interval, this.start),
      this.notice.element,
      this.figures,
      element("h2", {}, "Kept in this browser"),
      element("p", { class: "muted" }, "The weights are saved after each row above, the examples immediately; both survive a reload."),
      this.keeping.element,
      element("div", { class: "row" }, ...this.keepers()),
    );
  }

  keepers() {
    /** @type {[string, () => Promise<void>][]} */
    const actions = [
      ["Download the weights", () => this.download()],
      ["Delete the weights", () => this.forgetWeights()],
      ["Delete the examples", () => this.forgetExamples()],
    ];
    const buttons = actions.map(([text, work]) => {
      return element("button", { type: "button", onclick: action(this.keeping, work) }, text);
    });
    const take = action(this.keeping, () => this.take(chooser));
    const chooser = element("input", { type: "file", id: "weights", accept: ".safetensors", onchange: take });
    return [buttons[0], element("label", { class: "file" }, "Load weights", chooser), ...buttons.slice(1)];
  }

  show() {
    this.list.replaceChildren(...this.examplesShown());
    this.figures.replaceChildren(...this.figuresShown());
    this.last.hidden = this.examples.items.length === 0;
    this.source.refresh();
  }

  examplesShown() {
    const { items, training, held } = this.examples;
    if (items.length === 0) return [element("p", { class: "muted" }, "No examples yet.")];
    const total = `${counted(training.length, "example")} to train, ${held.length} held out to measure`;
    if (this.trainer.description.source === "drawing") {
      return [element("p", { class: "muted" }, `${total} (outlined).`), this.pictures()];
    }
    const rows = this.examples.counts().map(([label, all, out]) => [label || "all", String(all), String(out)]);
    return [element("p", { class: "muted" }, `${total}.`), table(["Class", "Examples", "Held out"], rows)];
  }

  pictures() {
    const [height, width] = this.trainer.shape;
    const shown = this.examples.items.slice(-SHOWN_PICTURES).map(({ x, label, held }) => {
      const canvas = element("canvas", { role: "img", "aria-label": `${label}${held ? ", held out" : ""}` });
      paintPicture(canvas, x, height, width, this.trainer.description.shades);
      return element("li", { class: held ? "held" : "" }, canvas, label);
    });
    return element("ul", { class: "examples" }, ...shown);
  }

  figuresShown() {
    if (this.history.length === 0) return [];
    const shown = this.trainer.description.scores;
    const rows = this.history.map(({ seconds, steps, loss, scores, held }) => [
      steps === 0 ? "before" : `${Math.round(seconds)} s`,
      steps.toLocaleString("en"),
      loss === null ? "" : number(loss),
      ...shown.map((score, i) => written(score, scores[i], held)),
    ]);
    const names = shown.map(({ title }) => `${title[0].toUpperCase()}${title.slice(1)} on held-out examples`);
    return [table(["Trained", "Steps", "Training loss", ...names], rows)];
  }

  async changed() {
    if (!this.running) this.notice.hide();
    this.show();
    await this.store.set("examples", this.examples.items);
  }

  async undo() {
    this.examples.undo();
    await this.changed();
  }

  async toggle() {
    if (this.running) {
      this.running = false;
      return;
    }
    this.running = true;
    this.start.textContent = "Stop";
    const awake = await navigator.wakeLock?.request("screen").catch(() => null); // only over https
    try {
      await this.train();
      this.notice.show("Stopped; the weights are saved.");
    } catch (error) {
      this.notice.show(reason(error), "failed");
    } finally {
      this.running = false;
      this.start.textContent = "Train";
      await awake?.release();
    }
  }

  /** Train until the user stops it; add a row of figures, and keep the weights, after each part. */
  async train() {
    const { training, held } = this.examples;
    if (training.length === 0 || held.length === 0) {
      throw new Error("Add at least two examples of one class: one to train on, and one held out to measure.");
    }
    const last = this.history.at(-1);
    if (last?.held !== held.length) {
      this.notice.show("Measuring before training …");
      await this.measured(last?.seconds ?? 0, last?.steps ?? 0, last?.loss ?? null);
    }
    while (this.running) await this.part(Number(this.interval.value));
  }

  /**
   * @param {number} interval Seconds.
   * @throws {Error} If a call fails, or a loss or weight is not finite; the weights are then those from before.
   */
  async part(interval) {
    const before = await this.trainer.state();
    try {
      await this.trained(interval);
    } catch (error) {
      await this.trainer.restore(before);
      this.source.refresh();
      throw error;
    }
  }

  /** @param {number} interval Seconds. */
  async trained(interval) {
    const { seconds, steps } = this.history[this.history.length - 1];
    const start = performance.now();
    const passed = () => (performance.now() - start) / 1000;
    let shown = 0;
    const losses = await this.trainer.train(this.examples.training, (done, loss) => {
      if (!Number.isFinite(loss)) throw new Error(`The loss of step ${steps + done} is ${loss}. ${REMEDY}`);
      if (passed() - shown > 0.25) {
        shown = passed();
        const now = `${Math.floor(shown)} of ${interval} s, ${counted(steps + done, "step")}, loss ${number(loss)}`;
        this.notice.show(`Training: ${now}`);
      }
      return this.running && passed() < interval;
    });
    const state = await this.trainer.state();
    if (!finite(state)) throw new Error(`A weight is not finite after step ${steps + losses.length}. ${REMEDY}`);
    const mean = losses.reduce((sum, loss) => sum + loss, 0) / losses.length;
    await this.measured(seconds + passed(), steps + losses.length, mean);
    await this.keep(state);
  }

  /**
   * Add a row with the figures on the examples that are held out.
   *
   * @param {number} seconds
   * @param {number} steps
   * @param {number | null} loss
   */
  async measured(seconds, steps, loss) {
    const { held } = this.examples;
    const scores = await this.trainer.scores(held);
    this.history.push({ seconds, steps, loss, scores, held: held.length });
    this.show();
  }

  /** @param {State} state */
  async keep(state) {
    const saved = new Date().toLocaleString("en", { dateStyle: "medium", timeStyle: "short" });
    /** @type {Kept} */
    const kept = { state, history: this.history, saved };
    try {
      await this.store.set("weights", kept);
    } catch (error) {
      this.keeping.show(reason(error), "failed"); // the training goes on without
    }
  }

  async download() {
    const { name, parameters, fingerprint } = this.trainer.description;
    const { weights } = await this.trainer.state();
    save(safetensors(parameters, weights, fingerprint), `${name}.personal.safetensors`);
  }

  /** @param {HTMLInputElement} chooser Of a file that `download` saved. */
  async take(chooser) {
    const [file] = chooser.files ?? [];
    if (!file) return;
    chooser.value = "";
    const content = new Uint8Array(await file.arrayBuffer());
    this.idle(); // a training may have started while the file was read
    try {
      const { parameters, fingerprint } = this.trainer.description;
      const weights = weightsOf(content, parameters, fingerprint);
      const state = { weights, slots: this.initial?.slots ?? null };
      if (!finite(state)) throw new Error("contains a weight that is not finite; choose another file.");
      await this.trainer.restore(state);
    } catch (error) {
      throw new Error(`${file.name}: ${reason(error)}`, { cause: error });
    }
    this.history = [];
    this.show();
    await this.keep(await this.trainer.state());
    this.keeping.show(`The model has the weights of ${file.name}.`, "good");
  }

  async forgetWeights() {
    this.idle();
    if (this.initial) await this.trainer.restore(this.initial);
    this.history = [];
    await this.store.forget("weights");
    this.show();
    this.keeping.show("The weights are deleted; the model is the server's again.");
  }

  async forgetExamples() {
    this.idle();
    this.examples = new Examples();
    await this.store.forget("examples");
    this.show();
    this.keeping.show("The examples are deleted.");
  }

  idle() {
    if (this.running) throw new Error("Stop the training first.");
  }
}

/**
 * @param {import("./subject.js").Score} score
 * @param {number | null} value
 * @param {number} held How many examples it is of.
 */
function written({ percent: isPercent }, value, held) {
  if (value === null) return "undefined";
  return isPercent ? `${percent(value)} of ${held}` : number(value);
}

/** @param {State} state */
function finite({ weights }) {
  return Object.values(weights).every((values) => values.every(Number.isFinite));
}

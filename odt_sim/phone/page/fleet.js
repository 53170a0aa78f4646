/**
 * The page of a phone that takes part in a run.
 *
 * @module
 */

import { Connection } from "./connection.js";
import { Device } from "./device.js";
import { reason } from "./dom.js";
import { load } from "./litert.js";
import { OwnExamples, split } from "./own_examples.js";
import { binary, json } from "./subject.js";

/** @typedef {import("./device.js").Splits} Splits */
/** @typedef {import("./litert.js").Model} Model */

const KINDS = { train: "Training", evaluate: "Evaluating", final: "Evaluating for the report" };

const NOT_FINITE =
  "The loss of this phone's training is not finite, so the run excludes it; scale the inputs, or run again with a " +
  "smaller train.learning_rate.";

/** @type {{ fingerprint: string, model: Model } | null} */
let loaded = null;

/** The metric by which the run compares strategies. */
let metric = { name: "", title: "", percent: false };

/** Why the run leaves out what this phone did last; empty if it does not. */
let leftOut = "";

/** @param {string} id */
function place(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/**
 * Make the device of a run.
 *
 * @param {import("./frames.js").Message} welcome
 */
async function prepare({ header, tensors }) {
  const model = await modelOf(header.fingerprint);
  const examples = header.slices ? slices(tensors) : split(await ownExamples(new OwnExamples(model, header)));
  return new Device(model, header, examples);
}

/** @param {string} fingerprint */
async function modelOf(fingerprint) {
  if (loaded?.fingerprint === fingerprint) return loaded.model;
  const [{ assets }, bytes] = await Promise.all([json("settings.json"), binary("model.tflite")]);
  const litert = await load({ assets });
  loaded?.model.delete();
  loaded = { fingerprint, model: await litert.compile(bytes) };
  return loaded.model;
}

/**
 * Return the examples that the run sent.
 *
 * @param {import("./frames.js").Message["tensors"]} tensors
 * @returns {Splits}
 */
function slices(tensors) {
  /** @type {Splits} */
  const splits = { train: {}, validation: {}, test: {} };
  for (const [name, value] of Object.entries(tensors)) {
    const [part, tensor] = name.split(".");
    splits[/** @type {keyof Splits} */ (part)][tensor] = value;
  }
  return splits;
}

/**
 * Return the examples that this browser keeps, or wait for the user to choose a file.
 *
 * @param {OwnExamples} own
 * @returns {Promise<import("./device.js").Examples>}
 */
async function ownExamples(own) {
  place("change").onclick = async () => {
    await own.forget();
    location.reload();
  };
  try {
    const found = await own.kept();
    if (found) return found;
    status("Choose the examples that this phone trains on; they stay in this browser.");
  } catch (error) {
    status(reason(error), "failed");
  }
  place("form").textContent = `A .csv or .npy file has one row per example: ${own.form.text}.`;
  place("choose").hidden = false;
  const chooser = /** @type {HTMLInputElement} */ (place("file"));
  return new Promise((resolve) => {
    chooser.onchange = async () => {
      const [file] = chooser.files ?? [];
      if (!file) return;
      try {
        resolve(await own.take(file));
        place("choose").hidden = true;
      } catch (error) {
        status(reason(error), "failed");
      }
      chooser.value = "";
    };
  });
}

/**
 * @param {string} text
 * @param {"" | "good" | "failed"} [kind]
 */
function status(text, kind = "") {
  place("status").textContent = text;
  place("status").className = `notice ${kind}`;
}

/**
 * @param {string} id
 * @param {string} text
 */
function fact(id, text) {
  place(id).textContent = text;
  place("facts").hidden = false;
}

/** @type {import("./connection.js").Show} */
function show(phase, details) {
  switch (phase) {
    case "connecting":
      return status("Joining the run …");
    case "welcome":
      metric = details.metric;
      document.title = `Device ${details.device}: odt_sim`;
      place("name").textContent = `This phone is device ${details.device}`;
      place("run").textContent = `of ${details.devices} in a run of ${details.strategy} with ${details.name}`;
      return status("Loading LiteRT.js and the model …");
    case "waiting":
      return showResult(details);
    case "working":
      return showWork(details);
    case "lost":
      place("work").hidden = true;
      return status(
        [details.sentence ?? "The connection to the run is lost.", leftOut, "Joining again …"].filter(Boolean).join(" "),
        "failed",
      );
    case "ended":
      place("work").hidden = true;
      place("again").hidden = Boolean(details.failed);
      return status(`${details.sentence} ${leftOut}`.trim(), details.failed || leftOut ? "failed" : "");
  }
}

/** @param {Record<string, any>} details */
function showResult({ train, validation, test, slices: sent, losses, split: of, figures, failed }) {
  place("work").hidden = true;
  if (train !== undefined) {
    fact("examples", `${train} to train, ${validation} to validate, ${test} to test`);
    place("privacy").textContent = sent
      ? "The run sent this phone its examples. Weights, losses and metrics are sent back."
      : "Your examples stay in this browser. Only weights, losses and metrics are sent.";
    place("change").hidden = sent;
  }
  if (failed) leftOut = `The model failed: ${failed}`;
  else if (losses) leftOut = losses.every(Number.isFinite) ? "" : NOT_FINITE;
  if (losses?.length) fact("loss", losses[losses.length - 1].toPrecision(3));
  if (of === "test" && figures?.[metric.name] !== undefined) fact("metric", written(figures[metric.name]));
  status(leftOut || "Waiting for the next task …", leftOut ? "failed" : "");
}

/**
 * Return a value of the metric with its name, such as `71.2% accuracy`.
 *
 * @param {number} value
 */
function written(value) {
  return `${metric.percent ? `${(100 * value).toFixed(1)}%` : value.toPrecision(3)} ${metric.title}`;
}

/** @param {Record<string, any>} details */
function showWork({ kind, round, done = 0, of = 0 }) {
  place("rounds").textContent = kind === "final" ? "Best round" : "Round";
  fact("round", String(round));
  status(`${KINDS[/** @type {keyof typeof KINDS} */ (kind)]} …`, "good");
  const bar = /** @type {HTMLProgressElement} */ (place("work"));
  bar.hidden = !of;
  bar.max = of || 1;
  bar.value = done;
}

/** Keep the screen on while the page is visible, where the browser allows it (https only). */
async function keepAwake() {
  try {
    await navigator.wakeLock?.request("screen");
  } catch {
    // the phone saves power
  }
}

const connection = new Connection(new URL("device", location.href.replace(/^http/, "ws")).href, prepare, show);
place("again").onclick = () => {
  place("again").hidden = true;
  connection.rejoin();
};
document.addEventListener("visibilitychange", () => {
  if (document.visibilityState !== "visible") return;
  keepAwake();
  connection.again();
});
addEventListener("online", () => connection.again());
keepAwake();
connection.join();

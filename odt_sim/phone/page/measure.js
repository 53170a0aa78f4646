/**
 * Measures: the time of a training step and of inference, and what the browser says about the device.
 *
 * @module
 */

import { action, element, Notice, table } from "./dom.js";
import { duration, number, percent } from "./format.js";
import { answer } from "./subject.js";
import { Trainer } from "./training.js";

/** @typedef {import("./subject.js").Subject} Subject */
/** @typedef {import("./subject.js").Timing} Timing */
/** @typedef {{ timings: Record<string, Timing>, load_milliseconds: number }} Speed */
/** @typedef {Record<string, number | string | boolean | null>} Facts */

const WARM_UP = 5;
const SECONDS = 2;
const FEWEST_SAMPLES = 5;
const LEAST_MILLISECONDS = 10; // of a sample: the clocks of browsers are as coarse as 1 ms
const MEMORY_PATIENCE = 4000; // milliseconds; browsers may wait for the next garbage collection

/** @param {Subject} subject */
export function measureSection(subject) {
  const notice = new Notice();
  const result = element("div");
  const run = action(notice, async () => {
    notice.show("Measuring for a few seconds …");
    result.replaceChildren();
    const speed = await measure(subject);
    const facts = await deviceFacts();
    notice.hide();
    result.replaceChildren(...resultOf(subject, speed, facts));
  });
  return element(
    "div",
    {},
    element("p", {}, "This device times a training step and inference. Keep the page in the foreground meanwhile."),
    element("div", { class: "row" }, element("button", { class: "primary", type: "button", onclick: run }, "Measure")),
    notice.element,
    result,
  );
}

/**
 * Time a fresh copy of the model.
 *
 * @param {Subject} subject
 * @returns {Promise<Speed>}
 */
export async function measure(subject) {
  const start = performance.now();
  const model = await subject.compile();
  const load = performance.now() - start;
  try {
    const trainer = new Trainer(model, subject.description);
    const batch = trainer.blank();
    const rows = subject.description.batch_size;
    const timings = {
      train: await timed(() => trainer.step(batch), rows),
      infer: await timed(() => trainer.infer(batch), rows),
    };
    return { timings, load_milliseconds: load };
  } finally {
    model.delete();
  }
}

/**
 * @param {() => Promise<unknown>} call
 * @param {number} rows
 * @returns {Promise<Timing>}
 */
async function timed(call, rows) {
  const warm = await elapsed(call, WARM_UP);
  const repeats = Math.max(1, Math.ceil(LEAST_MILLISECONDS / Math.max(warm, 0.01)));
  const samples = [];
  const end = performance.now() + 1000 * SECONDS;
  while (samples.length < FEWEST_SAMPLES || performance.now() < end) {
    samples.push(await elapsed(call, repeats));
    await new Promise((resolve) => setTimeout(resolve));
  }
  samples.sort((a, b) => a - b);
  return {
    batch: rows,
    median: quantile(samples, 0.5),
    lower_quartile: quantile(samples, 0.25),
    upper_quartile: quantile(samples, 0.75),
    calls: samples.length * repeats,
  };
}

/**
 * @param {() => Promise<unknown>} call
 * @param {number} repeats
 * @returns {Promise<number>} Milliseconds of a call.
 */
async function elapsed(call, repeats) {
  const start = performance.now();
  for (let repeat = 0; repeat < repeats; repeat++) await call();
  return (performance.now() - start) / repeats;
}

/**
 * @param {readonly number[]} sorted
 * @param {number} fraction
 */
export function quantile(sorted, fraction) {
  const position = fraction * (sorted.length - 1);
  const below = Math.floor(position);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (position - below) * (sorted[above] - sorted[below]);
}

/**
 * Return what the browser says about the device; null for what it does not say.
 *
 * @returns {Promise<Facts>}
 */
async function deviceFacts() {
  const browser = /** @type {any} */ (navigator);
  const battery = await Promise.resolve(browser.getBattery?.()).catch(() => null);
  return {
    memory_megabytes: await memory(),
    device_memory_gigabytes: browser.deviceMemory ?? null,
    cores: navigator.hardwareConcurrency ?? null,
    threads: 1, // LiteRT.js is loaded without threads
    battery: battery?.level ?? null,
    charging: battery?.charging ?? null,
    user_agent: navigator.userAgent,
  };
}

/** @returns {Promise<number | null>} Memory of the page in 10^6 bytes. */
async function memory() {
  const clock = /** @type {any} */ (performance);
  const patience = new Promise((resolve) => setTimeout(resolve, MEMORY_PATIENCE, null));
  const whole = crossOriginIsolated && clock.measureUserAgentSpecificMemory?.().catch(() => null);
  const found = await Promise.race([whole || null, patience]);
  const bytes = found?.bytes ?? clock.memory?.usedJSHeapSize;
  return bytes ? bytes / 1e6 : null;
}

/**
 * @param {Subject} subject
 * @param {Speed} speed
 * @param {Facts} facts
 */
function resultOf(subject, speed, facts) {
  const { python, batch_size: rows } = subject.description;
  const lines = Object.entries(speed.timings).map(([name, timing]) => [
    name,
    { text: duration(timing.median), note: quartiles(timing) },
    { text: duration(python[name].median), note: quartiles(python[name]) },
    `${number(python[name].median / timing.median)} ×`,
  ]);
  return [
    table(["Signature", "This device", "Python on the server", "Speed"], lines),
    element("p", { class: "muted" }, `Median and quartiles of calls with ${rows} rows, after ${WARM_UP} warm-up calls; one thread.`),
    element("dl", {}, ...shown(speed, facts)),
    ...uploadOf(subject, speed, facts),
  ];
}

/** @param {Timing} timing */
function quartiles({ lower_quartile: lower, upper_quartile: upper }) {
  return `${number(lower)}–${number(upper)}`;
}

/**
 * @param {Speed} speed
 * @param {Facts} facts
 */
function shown(speed, facts) {
  const charge = facts.charging ? ", charging" : "";
  const entries = [
    ["Compiling the file", duration(speed.load_milliseconds)],
    ["Memory of the page", facts.memory_megabytes === null ? null : `${number(Number(facts.memory_megabytes))} MB`],
    ["Memory of the device", facts.device_memory_gigabytes === null ? null : `${facts.device_memory_gigabytes} GB or more`],
    ["Cores", facts.cores === null ? null : String(facts.cores)],
    ["Battery", facts.battery === null ? null : `${percent(Number(facts.battery))}${charge}`],
  ];
  const items = entries.map(([name, text]) => {
    return element("div", {}, element("dt", {}, name ?? ""), element("dd", {}, text ?? "not reported"));
  });
  const agent = element("dd", {}, String(facts.user_agent));
  return [...items, element("div", { class: "wide" }, element("dt", {}, "Browser"), agent)];
}

/**
 * @param {Subject} subject
 * @param {Speed} speed
 * @param {Facts} facts
 */
function uploadOf(subject, speed, facts) {
  const notice = new Notice();
  const name = element("input", { type: "text", id: "device-name", value: suggestedName(), maxlength: "60" });
  const upload = action(notice, async () => {
    const { name: model, fingerprint } = subject.description;
    const profile = { format_version: 1, name: name.value, model, fingerprint, ...speed, ...facts };
    const headers = { "Content-Type": "application/json" };
    const response = await answer("profile", { method: "POST", headers, body: JSON.stringify(profile) });
    notice.show(`Stored on the server as ${(await response.json()).file}.`, "good");
  });
  return [
    element("h2", {}, "Device profile"),
    element("p", { class: "muted" }, "The upload contains only the measurements above."),
    element(
      "div",
      { class: "row" },
      element("label", { for: "device-name" }, "Name"),
      name,
      element("button", { class: "primary", type: "button", onclick: upload }, "Upload"),
    ),
    notice.element,
  ];
}

/** @returns {string} A name for this device by its system and browser, such as `android-chrome`. */
function suggestedName() {
  const first = (/** @type {string[]} */ names) => names.find((name) => navigator.userAgent.includes(name));
  const system = first(["iPhone", "iPad", "Android", "Windows", "Mac OS", "CrOS", "Linux"]) ?? "device"; // Android names Linux
  const browser = first(["Firefox", "Edg", "OPR", "Chrome", "Safari"]) ?? "browser"; // Edge names Chrome, and Chrome Safari
  return `${system}-${browser}`.toLowerCase().replace("mac os", "mac").replace("edg", "edge").replace("opr", "opera");
}

/**
 * The live page of the runs in a folder.
 *
 * @module
 */

import { axesOf, chart } from "./chart.js";
import { element } from "./dom.js";
import { follow } from "./stream.js";

/** @typedef {import("./stream.js").Job} Job */

const HEADINGS = ["job", "state", "round", "score", "train\nloss", "seconds\nper round", "time\nleft"];
const WORKING = ["starting", "running", "evaluating"];
const UNKNOWN = "–";
const TITLE = document.title;

/** @type {Job[]} */
let shown = [];
let ahead = 0; // seconds by which the server's clock is ahead
let heard = 0; // seconds since 1970 of the last message
let connected = false; // the server reads all runs before its first message
let live = false;

follow(
  (jobs, now) => {
    [ahead, heard, live] = [now - Date.now() / 1000, Date.now() / 1000, true];
    shown = jobs;
    showJobs();
    showStatus();
  },
  () => {
    [connected, live] = [false, false];
    showStatus();
  },
  () => {
    connected = true;
    showStatus();
  },
);
setInterval(showStatus, 1000);
setInterval(showTimes, 1000);

function showStatus() {
  const status = found("status");
  const age = heard ? ` Last update ${duration(Date.now() / 1000 - heard)} ago.` : "";
  const text = live ? "live" : heard ? `reconnecting …${age}` : connected ? "reading runs …" : "connecting …";
  if (status.textContent !== text) status.textContent = text;
  status.className = `status ${live ? "live" : heard ? "reconnecting" : ""}`;
}

function showJobs() {
  found("empty").hidden = shown.length > 0;
  const working = shown.filter((job) => WORKING.includes(job.state));
  document.title = working.length ? `${working.length} running · ${TITLE}` : TITLE;
  found("facts").replaceChildren(...facts());
  found("curves").replaceChildren(...curves());
  found("jobs").replaceChildren(...(shown.length ? [table()] : []));
  showTimes();
}

/** Show what changes with the clock. */
function showTimes() {
  for (const cell of document.querySelectorAll("td[data-left]")) {
    const { left = "", changed = "" } = /** @type {HTMLElement} */ (cell).dataset;
    cell.textContent = duration(Math.max(0, Number(left) - (Date.now() / 1000 + ahead - Number(changed))));
  }
  for (const note of document.querySelectorAll("small[data-changed]")) {
    const { changed = "" } = /** @type {HTMLElement} */ (note).dataset;
    note.textContent = `for ${duration(Math.max(0, Date.now() / 1000 + ahead - Number(changed)))}`;
  }
}

function facts() {
  const states = ["complete", "running", "evaluating", "starting", "silent", "failed"];
  const counts = states.map((state) => [state, shown.filter((job) => job.state === state).length]);
  return counts
    .filter(([, count]) => count)
    .map(([state, count]) => element("div", {}, element("dt", {}, String(state)), element("dd", {}, String(count))));
}

/** @returns {HTMLElement[]} A chart for each strategy that was evaluated, on axes that are shared by equal metrics. */
function curves() {
  const drawn = shown.filter((job) => job.curve.length);
  const groups = grouped(drawn, (job) => `${job.strategy} ${job.metric}`);
  return [...groups.values()].map((jobs) => {
    const [{ strategy, metric, colour }] = jobs;
    const title = `${strategy}: ${metric}`;
    const axes = axesOf(drawn.filter((job) => job.metric === metric));
    return element("figure", {}, element("h2", {}, swatch(colour), title), chart(jobs, axes, title));
  });
}

function table() {
  const names = HEADINGS.map((name) => (name === "score" ? metricHeading() : name));
  const head = names.map((name, index) => element("th", { scope: "col", class: index < 2 ? "text" : "" }, name));
  const rows = shown.flatMap((job) => [row(job), ...(job.error ? [failure(job.error)] : [])]);
  return element(
    "table",
    {},
    element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...rows),
  );
}

/** @returns {string} The metric, if all jobs have the same. */
function metricHeading() {
  const metrics = new Set(shown.flatMap((job) => job.metric ?? []));
  return metrics.size === 1 ? [...metrics][0] : "metric";
}

/** @param {Job} job */
function row(job) {
  const name = element("th", { scope: "row" }, swatch(job.colour), job.strategy);
  if (job.label) name.append(element("small", {}, job.label));
  return element(
    "tr",
    {},
    name,
    stateCell(job),
    roundCell(job),
    element("td", { title: job.metric ?? "" }, job.score),
    element("td", {}, job.loss),
    element("td", {}, job.pace === null ? UNKNOWN : seconds(job.pace)),
    job.left === null
      ? element("td", {}, UNKNOWN)
      : element("td", { "data-left": String(job.left), "data-changed": String(job.changed) }),
  );
}

/** @param {string} error */
function failure(error) {
  const cell = element("td", { class: "text", colspan: String(HEADINGS.length) }, element("small", { class: "failed" }, error));
  return element("tr", { class: "failure" }, cell);
}

/** @param {Job} job */
function stateCell(job) {
  const cell = element("td", { class: `text state ${job.state}` }, job.state);
  if (job.state === "silent") cell.append(element("small", { "data-changed": String(job.changed) }));
  return cell;
}

/** @param {Job} job */
function roundCell(job) {
  const { round, rounds } = job;
  if (rounds === null) return element("td", {}, round.toLocaleString("en"));
  const bar = element("progress", { value: String(round), max: String(rounds), "aria-label": "Completed rounds" });
  return element("td", {}, `${round.toLocaleString("en")} / ${rounds.toLocaleString("en")}`, bar);
}

/** @param {string} colour */
function swatch(colour) {
  const made = element("span", { class: "swatch" });
  made.style.background = colour;
  return made;
}

/**
 * @param {number} value
 * @returns {string} Seconds with three significant digits.
 */
function seconds(value) {
  return value >= 100 ? value.toFixed(0) : value.toPrecision(value < 0.001 ? 1 : 3);
}

/**
 * @param {number} value Seconds.
 * @returns {string} Such as `45 s`, `3 min` or `2 h 5 min`.
 */
function duration(value) {
  const [hours, minutes] = [Math.floor(value / 3600), Math.floor(value / 60) % 60];
  if (value < 60) return `${Math.round(value)} s`;
  if (hours >= 48) return `${Math.round(hours / 24)} days`;
  return hours ? `${hours} h ${minutes} min` : `${minutes} min`;
}

/**
 * @param {Job[]} jobs
 * @param {(job: Job) => string} key
 */
function grouped(jobs, key) {
  /** @type {Map<string, Job[]>} */
  const groups = new Map();
  for (const job of jobs) groups.set(key(job), [...(groups.get(key(job)) ?? []), job]);
  return groups;
}

/** @param {string} id */
function found(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

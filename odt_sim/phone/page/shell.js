/**
 * The page: it loads the model and shows a section at a time.
 *
 * @module
 */

import { checkSection } from "./check.js";
import { element, reason } from "./dom.js";
import { counted } from "./format.js";
import { measureSection } from "./measure.js";
import { personalizeSection } from "./personalize.js";
import { loadSubject } from "./subject.js";

/** @typedef {import("./subject.js").Subject} Subject */

/** @type {Record<string, { title: string, make: (subject: Subject) => HTMLElement | Promise<HTMLElement> }>} */
const SECTIONS = {
  check: { title: "Check", make: checkSection },
  measure: { title: "Measure", make: measureSection },
  personalize: { title: "Personalize", make: personalizeSection },
};

/** @param {string} id */
function place(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/** @param {Subject} subject */
function describe({ description, bytes }) {
  document.title = `${description.name}: odt_sim`;
  place("name").textContent = description.name;
  place("facts").textContent = [
    `${(bytes.length / 1000).toLocaleString("en", { maximumFractionDigits: 0 })} kB`,
    ...kinds(description),
    `batches of ${description.batch_size}`,
    `recorded with ${description.origin}`,
  ].join(" · ");
}

/** @param {import("./subject.js").Description} description */
function kinds({ inputs, outputs }) {
  const [{ task, classes, width }] = outputs;
  if (inputs.length > 1 || outputs.length > 1) return [counted(inputs.length, "input"), counted(outputs.length, "output")];
  if (task === "multi_label") return [counted(width, "label")];
  return classes ? [counted(classes, "class", "classes")] : [];
}

/** @param {string} wanted */
function select(wanted) {
  for (const name of Object.keys(SECTIONS)) {
    place(name).hidden = name !== wanted;
    place(`tab-${name}`).setAttribute("aria-selected", String(name === wanted));
  }
}

function selectByAddress() {
  const name = location.hash.slice(1);
  select(name in SECTIONS ? name : "check");
}

/** @param {Subject} subject */
async function build(subject) {
  for (const [name, { title, make }] of Object.entries(SECTIONS)) {
    const open = () => {
      history.replaceState(null, "", `#${name}`);
      select(name);
    };
    const tab = { id: `tab-${name}`, type: "button", role: "tab", "aria-controls": name, onclick: open };
    place("tabs").append(element("button", tab, title));
    const panel = { id: name, role: "tabpanel", "aria-labelledby": `tab-${name}` };
    place("sections").append(element("section", panel, await make(subject)));
  }
}

try {
  const subject = await loadSubject();
  describe(subject);
  await build(subject);
  selectByAddress();
  addEventListener("hashchange", selectByAddress);
  place("tabs").hidden = false;
  place("status").hidden = true;
} catch (error) {
  place("sections").hidden = true;
  place("name").textContent = "This device cannot run the model";
  place("status").textContent = reason(error);
  place("status").classList.add("failed");
}

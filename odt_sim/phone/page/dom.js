/**
 * Elements of the page.
 *
 * @module
 */

/**
 * Make an element.
 *
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, string | boolean | EventListener>} [properties] Attributes (`class`, `type`), `false` for none,
 *   and listeners (`onclick`).
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") made.addEventListener(name.slice(2), value);
    else if (value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

/**
 * @typedef {object} Cell
 * @property {string} text
 * @property {string} [kind] The cell's class, such as `good`.
 * @property {string} [note] A second, smaller line.
 */

/**
 * Make a table; the first cell of each row names it.
 *
 * @param {readonly string[]} headings
 * @param {readonly (readonly (string | Cell)[])[]} rows
 */
export function table(headings, rows) {
  const head = element("tr", {}, ...headings.map((heading) => element("th", { scope: "col" }, heading)));
  const body = rows.map((cells) => element("tr", {}, ...cells.map(cellOf)));
  return element(
    "div",
    { class: "scroll" },
    element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)),
  );
}

/**
 * @param {string | Cell} cell
 * @param {number} index
 */
function cellOf(cell, index) {
  const { text, kind = "", note } = /** @type {Cell} */ (typeof cell === "string" ? { text: cell } : cell);
  const content = note ? [text, element("small", {}, note)] : [text];
  return index === 0 ? element("th", { scope: "row" }, ...breakable(text)) : element("td", { class: kind }, ...content);
}

/**
 * @param {string} name Such as `restore_optimizer_state`.
 * @returns {(Node | string)[]} The name, which may break after each underscore.
 */
function breakable(name) {
  return name.split(/(?<=_)/).flatMap((part, index) => (index === 0 ? [part] : [element("wbr"), part]));
}

/** One line for the user, which screen readers announce. */
export class Notice {
  constructor() {
    this.element = element("p", { class: "notice", role: "status", hidden: true });
  }

  /**
   * @param {string} text
   * @param {"" | "good" | "failed"} [kind]
   */
  show(text, kind = "") {
    this.element.className = `notice ${kind}`;
    this.element.textContent = text;
    this.element.hidden = false;
  }

  hide() {
    this.element.hidden = true;
  }
}

/**
 * Return a listener that disables a button while it works, and shows an error as a sentence.
 *
 * @param {Notice} notice
 * @param {() => Promise<void> | void} work
 * @returns {EventListener}
 */
export function action(notice, work) {
  return async (event) => {
    const button = event.currentTarget instanceof HTMLButtonElement ? event.currentTarget : null;
    if (button) button.disabled = true;
    try {
      await work();
    } catch (error) {
      notice.show(reason(error), "failed");
    } finally {
      if (button) button.disabled = false;
    }
  };
}

/**
 * @param {unknown} error
 * @returns {string} Its message.
 */
export function reason(error) {
  return error instanceof Error ? error.message : String(error);
}

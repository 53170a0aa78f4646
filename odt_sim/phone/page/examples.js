/**
 * The user's own examples; some are held out of training, to measure accuracy.
 *
 * @module
 */

/** @typedef {import("./training.js").Example} Example */

const CYCLE = 3; // of each three examples of a label,
const HELD = 1; // the second is held out

/** Examples in the order in which they were made. */
export class Examples {
  /** @param {readonly Example[]} [items] */
  constructor(items = []) {
    this.items = [...items];
  }

  get training() {
    return this.items.filter(({ held }) => !held);
  }

  get held() {
    return this.items.filter(({ held }) => held);
  }

  /**
   * Add an example, and decide whether it is held out.
   *
   * @param {readonly number[]} x
   * @param {readonly number[]} y
   * @param {string} label
   */
  add(x, y, label) {
    const earlier = this.items.filter((item) => item.label === label).length;
    this.items.push({ x: [...x], y: [...y], label, held: earlier % CYCLE === HELD });
  }

  /** Remove the example that was added last. */
  undo() {
    this.items.pop();
  }

  /** @returns {[string, number, number][]} For each label the examples, and how many of them are held out. */
  counts() {
    const labels = [...new Set(this.items.map(({ label }) => label))];
    return labels.map((label) => {
      const own = this.items.filter((item) => item.label === label);
      return [label, own.length, own.filter(({ held }) => held).length];
    });
  }
}

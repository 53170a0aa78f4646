/**
 * A canvas to draw on with a finger, and its picture in the pixels that a model takes.
 *
 * @module
 */

import { element } from "./dom.js";

const SIDE = 320; // pixels of the canvas
const STROKE = 40;
const MARGIN_FROM = 20; // pixels of a side, from which pictures have a margin, as MNIST's have
const MARGIN = 4 / 28; // of a side

/** Draws strokes of a pointer: white ink on a clear ground. */
export class Drawing {
  /** @param {() => void} onChange Called after each stroke, and after `clear`. */
  constructor(onChange) {
    this.canvas = element("canvas", { class: "canvas", "aria-label": "Draw here", role: "img" });
    this.canvas.width = this.canvas.height = SIDE;
    this.onChange = onChange;
    this.context = context(this.canvas);
    /** @type {[number, number][]} */
    this.stroke = [];
    this.empty = true;
    this.canvas.addEventListener("pointerdown", (event) => this.begin(event));
    this.canvas.addEventListener("pointermove", (event) => this.extend(event));
    for (const name of /** @type {const} */ (["pointerup", "pointercancel"])) {
      this.canvas.addEventListener(name, () => this.end());
    }
  }

  clear() {
    this.context.clearRect(0, 0, SIDE, SIDE);
    this.stroke = [];
    this.empty = true;
    this.onChange();
  }

  /** @param {PointerEvent} event */
  begin(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.stroke = [this.position(event)];
    this.paint();
  }

  /** @param {PointerEvent} event */
  extend(event) {
    if (this.stroke.length === 0) return;
    this.stroke.push(this.position(event));
    this.paint();
  }

  end() {
    if (this.stroke.length === 0) return;
    this.stroke = [];
    this.empty = false;
    this.onChange();
  }

  /**
   * @param {PointerEvent} event
   * @returns {[number, number]}
   */
  position(event) {
    const box = this.canvas.getBoundingClientRect();
    return [((event.clientX - box.left) * SIDE) / box.width, ((event.clientY - box.top) * SIDE) / box.height];
  }

  paint() {
    const { context: ink, stroke } = this;
    Object.assign(ink, { lineWidth: STROKE, lineCap: "round", lineJoin: "round", strokeStyle: colour(this.canvas) });
    ink.beginPath();
    ink.moveTo(...stroke[Math.max(stroke.length - 2, 0)]);
    ink.lineTo(...stroke[stroke.length - 1]);
    ink.stroke();
  }

  /**
   * Return the picture, cut to its ink, fitted into the frame and centered, as pictures of digits are made.
   *
   * @param {number} height
   * @param {number} width
   * @returns {number[]} `height * width` numbers from 0 to 1, row by row; 1 is ink.
   */
  picture(height, width) {
    const ink = alphas(this.context, SIDE, SIDE);
    const box = bounds(ink);
    const frame = Math.min(height, width) >= MARGIN_FROM ? 1 - 2 * MARGIN : 1;
    const scale = Math.min((height * frame) / box.height, (width * frame) / box.width);
    const [wide, high] = [box.width * scale, box.height * scale];
    return averaged(ink, box, { scale, left: (width - wide) / 2, top: (height - high) / 2, height, width });
  }
}

/**
 * Paint a picture into a small canvas, in grey from the lower of two shades to the higher.
 *
 * @param {HTMLCanvasElement} canvas
 * @param {readonly number[]} picture
 * @param {number} height
 * @param {number} width
 * @param {[number, number]} shades Of paper and of ink.
 */
export function paintPicture(canvas, picture, height, width, shades) {
  const [low, high] = [Math.min(...shades), Math.max(...shades)];
  Object.assign(canvas, { width, height });
  const image = new ImageData(width, height);
  for (const [index, value] of picture.entries()) {
    const grey = Math.round((255 * (value - low)) / (high - low || 1));
    image.data.set([grey, grey, grey, 255], 4 * index);
  }
  context(canvas).putImageData(image, 0, 0);
}

/** @typedef {{ left: number, top: number, width: number, height: number }} Box */

/** @param {HTMLCanvasElement} canvas */
function context(canvas) {
  return /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { willReadFrequently: true }));
}

/** @param {HTMLCanvasElement} canvas */
function colour(canvas) {
  return getComputedStyle(canvas).color;
}

/**
 * @param {CanvasRenderingContext2D} source
 * @param {number} width
 * @param {number} height
 * @returns {number[]} Opacity of each pixel, 0 to 1.
 */
function alphas(source, width, height) {
  const { data } = source.getImageData(0, 0, width, height);
  return Array.from({ length: width * height }, (_, index) => data[4 * index + 3] / 255);
}

/**
 * @param {readonly number[]} ink
 * @returns {Box} The smallest that holds all ink.
 */
function bounds(ink) {
  let [left, top, right, bottom] = [SIDE, SIDE, 0, 0];
  for (const [index, value] of ink.entries()) {
    if (value < 0.5) continue;
    const [x, y] = [index % SIDE, Math.floor(index / SIDE)];
    [left, right] = [Math.min(left, x), Math.max(right, x + 1)];
    [top, bottom] = [Math.min(top, y), Math.max(bottom, y + 1)];
  }
  return { left, top, width: Math.max(right - left, 1), height: Math.max(bottom - top, 1) };
}

/**
 * Return the mean ink that falls on each pixel of the picture.
 *
 * @param {readonly number[]} ink
 * @param {Box} box
 * @param {{ scale: number, left: number, top: number, height: number, width: number }} target
 */
function averaged(ink, box, { scale, left, top, height, width }) {
  const picture = new Array(height * width).fill(0);
  for (let y = 0; y < box.height; y++) {
    const row = Math.min(Math.floor(top + (y + 0.5) * scale), height - 1);
    for (let x = 0; x < box.width; x++) {
      const column = Math.min(Math.floor(left + (x + 0.5) * scale), width - 1);
      picture[row * width + column] += ink[(box.top + y) * SIDE + box.left + x] * scale * scale;
    }
  }
  return picture.map((value) => Math.min(value, 1));
}

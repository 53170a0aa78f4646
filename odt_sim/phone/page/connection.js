/**
 * This phone's part in a run: it joins by a WebSocket, does what the run asks for, and joins again after a loss.
 *
 * @module
 */

import { lengthOf } from "./device.js";
import { reason } from "./dom.js";
import { decode, encode } from "./frames.js";
import { mapped } from "./tensors.js";

/** @typedef {import("./device.js").Device} Device */
/** @typedef {import("./frames.js").Message} Message */

const PROGRESS = 1000; // milliseconds between two reports of progress
const BLOCKED = 200; // milliseconds for which work may keep the page from being drawn
const SIGN = 20_000; // milliseconds between two signs of life: a server that has gone shows only where something is sent
const LONGEST_FRAME = 100; // milliseconds after which a frame is no longer waited for
const PAUSES = [500, 1000, 2000, 4000, 8000]; // milliseconds before each attempt to join again
const ATTEMPTS_AFTER_END = 3; // to join again after the run has ended: it may have been resumed
const SECRET = "odt_sim.phone";

/**
 * What the page shows.
 *
 * @callback Show
 * @param {"connecting" | "welcome" | "waiting" | "working" | "lost" | "ended"} phase
 * @param {Record<string, any>} details
 * @returns {void}
 */

/** A connection to the run, which is made again until the run ends it. */
export class Connection {
  /**
   * @param {string} address The WebSocket's address.
   * @param {(welcome: Message) => Promise<Device>} prepare Makes the device, once the run has said which it is.
   * @param {Show} show
   */
  constructor(address, prepare, show) {
    this.address = address;
    this.prepare = prepare;
    this.show = show;
    /** @type {WebSocket | null} */
    this.socket = null;
    /** @type {Device | null} */
    this.device = null;
    this.latest = 0; // the last request: earlier ones are no longer wanted
    this.attempts = 0;
    this.ended = false;
    this.complete = false; // whether the run has said that it ended, and has not taken this phone again
    /** @type {Record<string, any>} */
    this.parting = {}; // the run's last words before this phone joins again by itself
    this.queue = Promise.resolve();
    this.takesPart = false;
    setInterval(() => this.sign(), SIGN);
  }

  /** Join the run. */
  join() {
    this.ended = false;
    this.takesPart = false;
    this.show("connecting", {});
    const socket = new WebSocket(this.address);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => socket.send(encode({ do: "join", phone: secret() }));
    socket.onmessage = ({ data }) => this.received(socket, data);
    socket.onclose = () => this.closed(socket);
    this.socket = socket;
  }

  /**
   * @param {WebSocket} socket
   * @param {ArrayBuffer} frame
   */
  received(socket, frame) {
    if (socket !== this.socket) return;
    const message = decode(frame);
    if (message.header.do === "end") {
      this.ended = !message.header.again;
      this.complete = this.ended;
      this.latest = 0;
      this.parting = this.ended ? {} : message.header;
      this.show(this.ended ? "ended" : "lost", message.header);
      return;
    }
    if (message.header.id) this.latest = message.header.id;
    this.queue = this.queue.then(() => this.answer(socket, message)).catch((error) => this.stop(error));
  }

  /**
   * @param {WebSocket} socket
   * @param {Message} message
   */
  async answer(socket, message) {
    const { header } = message;
    if (header.do === "welcome") {
      this.show("welcome", header);
      this.device = await this.prepare(message);
      const counts = mapped(this.device.examples, lengthOf);
      socket.send(encode({ do: "ready", fingerprint: header.fingerprint, ...counts }));
      this.takesPart = true;
      this.attempts = 0;
      this.complete = false;
      this.parting = {};
      this.show("waiting", { ...counts, slices: header.slices });
      return;
    }
    const wanted = () => socket === this.socket && socket.readyState === WebSocket.OPEN && header.id === this.latest;
    if (!this.device || !wanted()) return;
    this.show("working", header);
    const reply = await this.work(socket, message, wanted);
    if (reply && wanted()) {
      socket.send(encode({ do: "done", ...reply.header, id: header.id }, reply.tensors));
      this.show("waiting", { ...reply.header, split: header.split, losses: reply.tensors?.losses?.data });
    }
  }

  /**
   * Return the device's reply; null if the request is no longer wanted.
   *
   * @param {WebSocket} socket
   * @param {Message} message
   * @param {() => boolean} wanted
   */
  async work(socket, message, wanted) {
    const { id } = message.header;
    let drawn = performance.now();
    let reported = drawn;
    try {
      return await /** @type {Device} */ (this.device).work(message, async (done, of) => {
        if (!wanted()) throw new Error("no longer wanted");
        const now = performance.now();
        if (now - reported > PROGRESS) {
          socket.send(encode({ do: "progress", id }));
          reported = now;
        }
        if (now - drawn > BLOCKED) {
          this.show("working", { ...message.header, done, of });
          await drawing();
          drawn = performance.now();
        }
      });
    } catch (error) {
      if (!wanted()) return null;
      socket.send(encode({ do: "failed", error: reason(error), id }));
      this.show("waiting", { failed: reason(error) });
      return null;
    }
  }

  /** @param {unknown} error */
  stop(error) {
    this.ended = true;
    this.show("ended", { sentence: reason(error), failed: true });
    this.socket?.close();
  }

  /** @param {WebSocket} socket */
  closed(socket) {
    if (socket !== this.socket || this.ended) return;
    this.socket = null;
    if (this.complete && this.attempts >= ATTEMPTS_AFTER_END) {
      this.ended = true;
      this.show("ended", { sentence: "The run has ended and the server has stopped." });
      return;
    }
    const pause = PAUSES[Math.min(this.attempts, PAUSES.length - 1)];
    this.attempts += 1;
    this.show("lost", this.parting);
    setTimeout(() => this.retry(), pause);
  }

  /** Join again, unless the server refuses this page's address. */
  async retry() {
    const refused = await refusal();
    if (refused) this.stop(new Error(refused));
    else this.again();
  }

  /** Join again because the user asks for it after the end. */
  rejoin() {
    this.attempts = 0;
    this.join();
  }

  /** Join again now, unless the run has ended; if this phone takes part, see whether the server is still there. */
  again() {
    if (this.socket) this.sign();
    else if (!this.ended) this.join();
  }

  /** Send a sign of life, which the run ignores: it has no id, so that work that hangs still counts as silent. */
  sign() {
    if (!this.takesPart || this.socket?.readyState !== WebSocket.OPEN) return;
    this.socket.send(encode({ do: "progress" }));
  }
}

/** @returns {Promise<string | null>} The server's sentence if it refuses this page; null if it does not, or is away. */
async function refusal() {
  try {
    const response = await fetch("settings.json");
    return response.status === 403 ? await response.text() : null;
  } catch {
    return null;
  }
}

/** Let the page be drawn and other messages in; a hidden page gets no frames, and its timers are slowed down. */
function drawing() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => resolve(undefined);
    const go = () => port2.postMessage(null);
    if (document.visibilityState !== "visible") return go();
    setTimeout(go, LONGEST_FRAME);
    requestAnimationFrame(go);
  });
}

/** Return the secret by which the run knows this browser again. */
function secret() {
  const kept = localStorage.getItem(SECRET);
  if (kept) return kept;
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const made = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  localStorage.setItem(SECRET, made);
  return made;
}

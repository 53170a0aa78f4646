/**
 * Recordings of the motion sensor, as windows of the shape that a model takes.
 *
 * Three channels are the acceleration with gravity, in g; six add the angular velocity, in rad/s. Nine are those of UCI HAR:
 * acceleration without gravity, angular velocity, acceleration with gravity.
 *
 * @module
 */

const RATE = 50; // samples a second
const GRAVITY = 9.80665; // m/s² of 1 g
const RADIANS = Math.PI / 180;
const PATIENCE = 2000; // milliseconds until the first reading

/** @typedef {{ time: number, values: number[] }} Reading */

/**
 * Record windows of motion.
 *
 * @param {readonly number[]} shape `[channels, samples]`, or `[samples, channels]`; there are fewer channels than samples.
 * @param {number} seconds
 * @param {number} delay Seconds before the first window.
 * @param {(text: string) => void} progress
 * @returns {Promise<number[][]>} As many windows, side by side, as fit into the time.
 * @throws {Error} If the browser gives no readings.
 */
export async function record(shape, seconds, delay, progress) {
  const [channels, samples] = [Math.min(...shape), Math.max(...shape)];
  const windows = Math.max(1, Math.floor((seconds * RATE) / samples));
  await allowed();
  for (let left = delay; left > 0; left--) {
    progress(`Recording starts in ${left} s`);
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
  const readings = await listen((1000 * windows * samples) / RATE, channels, (left) => progress(`Recording: ${left} s left`));
  const even = resampled(readings, windows * samples);
  return Array.from({ length: windows }, (_, index) => {
    const rows = even.slice(index * samples, (index + 1) * samples);
    return shape[0] === channels ? Array.from({ length: channels }, (__, c) => rows.map((row) => row[c])).flat() : rows.flat();
  });
}

/** Ask for permission where the browser (iOS) wants to be asked. */
async function allowed() {
  const events = /** @type {any} */ (globalThis).DeviceMotionEvent;
  if (!events || !isSecureContext) {
    throw new Error("This browser offers no motion sensor here; open the page over https on a phone, or use a file.");
  }
  if (events.requestPermission && (await events.requestPermission()) !== "granted") {
    throw new Error("Access to the motion sensor was denied; allow it in the browser's settings for this page.");
  }
}

/**
 * @param {number} milliseconds
 * @param {number} channels
 * @param {(left: number) => void} progress
 * @returns {Promise<Reading[]>}
 */
function listen(milliseconds, channels, progress) {
  /** @type {Reading[]} */
  const readings = [];
  return new Promise((resolve, reject) => {
    /** @param {DeviceMotionEvent} event */
    const onMotion = (event) => {
      const values = valuesOf(event, channels);
      if (values) readings.push({ time: performance.now(), values });
    };
    const start = performance.now();
    const timer = setInterval(() => {
      const passed = performance.now() - start;
      const silent = readings.length === 0 && passed > Math.min(PATIENCE, milliseconds);
      progress(Math.max(0, Math.ceil((milliseconds - passed) / 1000)));
      if (!silent && passed < milliseconds) return;
      clearInterval(timer);
      removeEventListener("devicemotion", onMotion);
      if (silent) reject(new Error("The motion sensor gives no readings; use a phone that has one, or use a file."));
      else resolve(readings);
    }, 100);
    addEventListener("devicemotion", onMotion);
  });
}

/**
 * @param {DeviceMotionEvent} event
 * @param {number} channels
 * @returns {number[] | null} Accelerations in g and angular velocities in rad/s; null if the sensor gives none.
 */
function valuesOf({ acceleration, accelerationIncludingGravity: total, rotationRate: rotation }, channels) {
  if (total?.x == null) return null;
  const whole = [total.x, total.y ?? 0, total.z ?? 0].map((value) => value / GRAVITY);
  if (channels === 3) return whole;
  const turn = [rotation?.beta ?? 0, rotation?.gamma ?? 0, rotation?.alpha ?? 0].map((value) => value * RADIANS);
  if (channels === 6) return [...whole, ...turn];
  const body = [acceleration?.x ?? 0, acceleration?.y ?? 0, acceleration?.z ?? 0].map((value) => value / GRAVITY);
  return [...body, ...turn, ...whole];
}

/**
 * @param {readonly Reading[]} readings In the order of time.
 * @param {number} count
 * @returns {number[][]} Values at `RATE`, interpolated between the readings around each time.
 */
export function resampled(readings, count) {
  let next = 0;
  return Array.from({ length: count }, (_, index) => {
    const time = readings[0].time + (1000 * index) / RATE;
    while (next < readings.length - 1 && readings[next].time < time) next++;
    const [before, after] = [readings[Math.max(next - 1, 0)], readings[next]];
    const span = after.time - before.time;
    const part = span > 0 ? Math.min(Math.max((time - before.time) / span, 0), 1) : 0;
    return before.values.map((value, channel) => value + part * (after.values[channel] - value));
  });
}

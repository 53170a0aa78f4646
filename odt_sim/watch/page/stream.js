/**
 * The stream of jobs, which connects again by itself.
 *
 * @module
 */

const SILENCE = 20_000; // milliseconds; the server says something every five seconds
const RETRY = 2_000;

/**
 * @typedef {object} Job
 * @property {string} id The run's folder below the watched one.
 * @property {string} strategy
 * @property {string} label What differs from other jobs of the strategy.
 * @property {string} colour
 * @property {"starting" | "running" | "evaluating" | "silent" | "complete" | "failed"} state
 * @property {number} round
 * @property {number | null} rounds
 * @property {string | null} metric
 * @property {string} score
 * @property {string} loss
 * @property {number | null} pace Seconds a round.
 * @property {number | null} left Seconds, counted from `changed`.
 * @property {number | null} changed Seconds since 1970, by the server's clock.
 * @property {string | null} error
 * @property {[number, number][]} curve Rounds, and values as on an axis.
 */

/**
 * @typedef {object} Message
 * @property {number} now Seconds since 1970, by the server's clock.
 * @property {string[]} order The ids of all jobs.
 * @property {Job[]} jobs Those that changed.
 */

/**
 * Follow the jobs for as long as the page is open.
 *
 * `EventSource` connects again after most failures, and gives up after some answers of proxies. A connection may also die
 * without a sign, such as while a laptop sleeps. In both cases a new one is made; its first message has all jobs.
 *
 * @param {(jobs: Job[], now: number) => void} onJobs Called with all jobs in order, also when nothing changed.
 * @param {() => void} onLoss Called when the connection is lost.
 * @param {() => void} onOpen Called when the connection is made.
 */
export function follow(onJobs, onLoss, onOpen) {
  /** @type {Map<string, Job>} */
  let known = new Map();
  let timer = 0;
  const source = new EventSource("events");
  const again = (/** @type {number} */ milliseconds) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      source.close();
      onLoss();
      follow(onJobs, onLoss, onOpen);
    }, milliseconds);
  };
  source.onopen = onOpen;
  source.onmessage = (event) => {
    const { now, order, jobs } = /** @type {Message} */ (JSON.parse(event.data));
    const changed = new Map(jobs.map((job) => [job.id, job]));
    known = new Map(order.flatMap((id) => entry(id, changed.get(id) ?? known.get(id))));
    again(SILENCE);
    onJobs([...known.values()], now);
  };
  source.onerror = () => {
    onLoss();
    if (source.readyState === EventSource.CLOSED) again(RETRY);
  };
  again(SILENCE);
}

/**
 * @param {string} id
 * @param {Job | undefined} job
 * @returns {[string, Job][]}
 */
function entry(id, job) {
  return job ? [[id, job]] : [];
}

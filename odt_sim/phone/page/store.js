/**
 * What the browser keeps over a reload, in IndexedDB: by a model's fingerprint, its weights and the user's examples.
 *
 * @module
 */

const DATABASE = "odt_sim";
const STORE = "personal";

/** Values of one model; they never leave the browser. */
export class Store {
  /** @param {string} fingerprint */
  constructor(fingerprint) {
    this.fingerprint = fingerprint;
  }

  /**
   * @param {string} name
   * @returns {Promise<any>} The value; undefined if there is none.
   */
  get(name) {
    return request("readonly", (store) => store.get(this.key(name)));
  }

  /**
   * @param {string} name
   * @param {unknown} value
   */
  set(name, value) {
    return request("readwrite", (store) => store.put(value, this.key(name)));
  }

  /** @param {string} name */
  forget(name) {
    return request("readwrite", (store) => store.delete(this.key(name)));
  }

  /** @param {string} name */
  key(name) {
    return `${this.fingerprint}/${name}`;
  }
}

/**
 * @template Result
 * @param {IDBTransactionMode} mode
 * @param {(store: IDBObjectStore) => IDBRequest<Result>} ask
 * @returns {Promise<Result>}
 * @throws {Error} If the browser keeps nothing, such as in a private window.
 */
async function request(mode, ask) {
  try {
    const database = await opened();
    try {
      const transaction = database.transaction(STORE, mode);
      const asked = ask(transaction.objectStore(STORE));
      await settled(transaction);
      return asked.result;
    } finally {
      database.close();
    }
  } catch (error) {
    throw new Error("This browser cannot store data for this page (private window, or no space left).", { cause: error });
  }
}

/** @returns {Promise<IDBDatabase>} */
function opened() {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open(DATABASE, 1);
    opening.onupgradeneeded = () => opening.result.createObjectStore(STORE);
    opening.onsuccess = () => resolve(opening.result);
    opening.onerror = () => reject(opening.error);
  });
}

/**
 * @param {IDBTransaction} transaction
 * @returns {Promise<void>}
 */
function settled(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = transaction.onerror = () => reject(transaction.error);
  });
}

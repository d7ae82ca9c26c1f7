/**
 * Asks about the newest input only: waits until it rests, keeps one question in flight and drops outdated answers.
 *
 * `work(input)` returns a promise; `settle(input, result, error)` is called only if the input is still the newest.
 */
export class Latest {
  #work;
  #settle;
  #wanted = null;
  #timer = null;
  #running = false;

  constructor(work, settle) {
    this.#work = work;
    this.#settle = settle;
  }

  /** Whether an answer is still to come. */
  get waiting() {
    return this.#wanted !== null;
  }

  ask(input, delay = 0) {
    this.#wanted = input;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#run(), delay);
  }

  drop() {
    this.#wanted = null;
    clearTimeout(this.#timer);
  }

  async #run() {
    if (this.#running) return; // the running loop will pick it up
    this.#running = true;
    while (this.#wanted !== null) {
      const input = this.#wanted;
      let result = null;
      let error = null;
      try {
        result = await this.#work(input);
      } catch (raised) {
        error = raised;
      }
      if (this.#wanted !== input) continue;
      this.#wanted = null;
      this.#settle(input, result, error);
    }
    this.#running = false;
  }
}

/** The state of the page, and every change to it. Views read it and are told when to draw. */

import { patternOf } from "./fills.js";
import { Latest } from "./latest.js";
import { fits, inTheMiddle, moveTo, shapesOf, sizeTo } from "./patch.js";
import { cut, decode, encode, paste, toGrey } from "./pixels.js";
import { attack, certify } from "./server.js";

const REST = 60; // milliseconds that a dragged patch must rest before the server is asked
const STEPS = 40; // of the first attack; a longer one takes as many as the server allows

export class Bench {
  picture = null; // { pixels, label, file, answer }; the answer is null until known
  patch = null;
  patched = null; // the answer to the picture with the patch where it is
  fill = { kind: "solid", color: "#ffd400", seed: 1, other: null, found: null };
  view = { evidence: false, classIndex: null }; // null: the answer's own class
  problem = null;

  #questions = new Latest(askAbout, (input, answers, error) => this.#answered(input, answers, error));
  #attacks = new Latest(attackOf, (input, found, error) => this.#attackDone(input, found, error));

  constructor(model, samples, draw) {
    this.model = model;
    this.samples = samples;
    this.shapes = shapesOf(model.threat);
    this.draw = draw;
  }

  get attacking() {
    return this.#attacks.waiting;
  }

  /** Samples that show another class than the picture, to cut a patch from. */
  get others() {
    const known = this.picture.answer?.name ?? this.picture.label;
    return this.samples.filter(({ label }) => label !== known);
  }

  get other() {
    return this.others.includes(this.fill.other) ? this.fill.other : (this.others[0] ?? null);
  }

  /** The small picture on the patch; null while it is still being made. */
  get pattern() {
    const pattern = patternOf({ ...this.fill, other: this.other }, this.patch);
    return pattern !== null && this.model.channels === 1 ? toGrey(pattern) : pattern;
  }

  /** What is shown and, if there is a patch, certified. */
  get painted() {
    if (this.patch === null) return this.picture.pixels;
    const pattern = this.pattern;
    return pattern === null ? null : paste(this.picture.pixels, pattern, this.patch.row, this.patch.column);
  }

  /** Show the first sample, and ask about all of them: the server answers a dozen as fast as one. */
  async open() {
    this.picture = this.samples[0];
    this.draw();
    try {
      const answers = await certify(
        this.samples.map(({ blob }) => blob),
        this.model,
      );
      this.samples.forEach((sample, index) => (sample.answer = answers[index]));
      this.draw();
    } catch (error) {
      this.fail(error);
    }
  }

  choose(picture) {
    this.picture = picture;
    this.fill = { ...this.fill, found: null };
    this.view = { ...this.view, classIndex: null };
    if (this.patch !== null && this.fill.kind === "attack") this.startAttack();
    else this.#changed(0);
  }

  put(patch = null) {
    const { height, width } = this.shapes[0];
    this.patch = patch ?? this.patch ?? inTheMiddle(height, width, this.model);
    this.#changed(REST);
  }

  remove() {
    this.patch = null;
    this.#attacks.drop();
    this.#changed(0);
  }

  moveTo(row, column) {
    this.put(moveTo(this.patch, row, column, this.model));
  }

  sizeTo(height, width) {
    this.put(sizeTo(this.patch, height, width, this.model));
    if (this.fill.kind === "attack") this.startAttack();
  }

  paint(fill) {
    this.fill = { ...this.fill, ...fill };
    const attacks = this.fill.kind === "attack";
    if (attacks && (this.patch === null || this.pattern === null)) return this.startAttack();
    if (!attacks) this.#attacks.drop();
    this.put();
  }

  look(view) {
    this.view = { ...this.view, ...view };
    this.draw();
  }

  /** Attack where the proof is weakest. The server attacks only within its threat, so a larger patch shrinks. */
  startAttack(steps = STEPS) {
    const { height, width } = this.shapes[0];
    const patch = this.patch ?? inTheMiddle(height, width, this.model);
    this.patch = fits(patch, this.shapes) ? patch : sizeTo(patch, height, width, this.model);
    this.fill = { ...this.fill, kind: "attack" };
    const { picture, model } = this;
    this.#attacks.ask({ picture, patch: this.patch, steps: Math.min(steps, model.limits.attack_steps) }, REST);
    this.#changed(REST);
  }

  attackLonger() {
    this.startAttack(this.model.limits.attack_steps);
  }

  fail(error) {
    this.problem = error.message;
    this.draw();
  }

  /** Ask about what is shown; answers to anything older are dropped. */
  #changed(delay) {
    this.patched = null;
    this.problem = null;
    const { picture, model } = this;
    const painted = this.patch === null ? null : this.painted;
    if (painted === null && picture.answer !== null) this.#questions.drop();
    else this.#questions.ask({ picture, painted, model }, delay);
    this.draw();
  }

  #answered({ picture, painted }, answers, error) {
    if (error !== null) return this.fail(error);
    picture.answer = answers.clean;
    if (painted !== null) this.patched = answers.patched;
    this.draw();
  }

  #attackDone(_, found, error) {
    if (error !== null) return this.fail(error);
    this.fill = { ...this.fill, found };
    this.put(found.placement);
  }
}

/** Asks only what is not known yet, in one request. */
async function askAbout({ picture, painted, model }) {
  const wanted = [];
  if (picture.answer === null) wanted.push(["clean", picture.file ?? encode(picture.pixels)]);
  if (painted !== null) wanted.push(["patched", encode(painted)]);
  const answers = await certify(await Promise.all(wanted.map(([, blob]) => blob)), model);
  const found = Object.fromEntries(wanted.map(([name], index) => [name, answers[index]]));
  return { clean: picture.answer, ...found };
}

async function attackOf({ picture, patch, steps }) {
  const found = await attack(await encode(picture.pixels), patch, steps);
  const bytes = Uint8Array.from(atob(found.picture), (letter) => letter.charCodeAt(0));
  const attacked = await decode(new Blob([bytes], { type: "image/png" }), Infinity);
  const { placement, changed } = found;
  return { placement, changed, steps: found.steps, pattern: cut(attacked, placement) };
}

/** The picture, the evidence drawn over it, and the patch that can be dragged. */

import { draw } from "./pixels.js";
import { layer, strength } from "./scores.js";
import { sizeText, spoken } from "./words.js";

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const SIZES = { "+": 1, "=": 1, "-": -1, "−": -1, _: -1 };

export function createStage(bench) {
  const [frame, picture, evidence, patch] = ["frame", "picture", "evidence", "patch"].map((id) =>
    document.getElementById(id),
  );
  patch.addEventListener("keydown", (event) => onKey(event, bench));
  letDrag(frame, patch, bench);
  return () => {
    draw(picture, bench.painted ?? bench.picture.pixels);
    picture.setAttribute("aria-label", describe(bench));
    drawEvidence(evidence, bench);
    frame.dataset.evidence = bench.view.evidence;
    frame.dataset.patch = bench.patch !== null;
    drawPatch(patch, bench);
  };
}

function describe({ picture, patch }) {
  const name = picture.label === null ? "Your picture" : `Sample picture: ${picture.label}`;
  return patch === null ? name : `${name}, with a patch on it`;
}

function drawEvidence(canvas, { view, picture, patch, patched }) {
  const answer = patch === null ? picture.answer : patched;
  canvas.hidden = !view.evidence || answer === null;
  if (canvas.hidden) return;
  draw(canvas, layer(answer.scores[view.classIndex ?? answer.class], strength(picture.answer.scores)));
}

function drawPatch(element, { patch, model, attacking }) {
  element.hidden = patch === null;
  if (patch === null) return;
  element.style.top = `${(100 * patch.row) / model.height}%`;
  element.style.left = `${(100 * patch.column) / model.width}%`;
  element.style.height = `${(100 * patch.height) / model.height}%`;
  element.style.width = `${(100 * patch.width) / model.width}%`;
  element.dataset.attacking = attacking;
  const label = `Patch, ${spoken(sizeText(patch))} pixels, at row ${patch.row}, column ${patch.column}`;
  if (element.getAttribute("aria-label") !== label) element.setAttribute("aria-label", label);
}

function onKey(event, bench) {
  const { row, column, height, width } = bench.patch;
  if (event.key in STEPS) {
    const far = event.shiftKey ? 4 : 1;
    const [down, right] = STEPS[event.key];
    bench.moveTo(row + far * down, column + far * right);
  } else if (event.key in SIZES && !event.ctrlKey && !event.metaKey) {
    bench.sizeTo(height + SIZES[event.key], width + SIZES[event.key]);
  } else if (event.key === "Delete" || event.key === "Backspace" || event.key === "Escape") {
    bench.remove();
    document.getElementById("add").focus();
  } else {
    return;
  }
  event.preventDefault();
}

/** Pressing the patch grabs it at that point; pressing beside it moves its middle there. */
function letDrag(frame, element, bench) {
  let grip = null; // from the patch's corner to the pointer, in pixels of the picture
  const spot = (event) => {
    const box = frame.getBoundingClientRect();
    return {
      row: ((event.clientY - box.top) / box.height) * bench.model.height,
      column: ((event.clientX - box.left) / box.width) * bench.model.width,
    };
  };
  const follow = (event) => {
    const { row, column } = spot(event);
    bench.moveTo(Math.round(row - grip.row), Math.round(column - grip.column));
  };
  frame.addEventListener("pointerdown", (event) => {
    if (bench.patch === null || event.button !== 0) return;
    const { row, column } = spot(event);
    const held = event.target === element;
    // A finger beside the patch may be about to scroll; only a tap, handled below, moves the patch.
    if (!held && event.pointerType === "touch") return;
    grip = held
      ? { row: row - bench.patch.row, column: column - bench.patch.column }
      : { row: bench.patch.height / 2, column: bench.patch.width / 2 };
    frame.setPointerCapture(event.pointerId);
    element.focus({ preventScroll: true });
    follow(event);
    event.preventDefault();
  });
  frame.addEventListener("pointermove", (event) => grip !== null && follow(event));
  for (const end of ["pointerup", "pointercancel"]) frame.addEventListener(end, () => (grip = null));
  frame.addEventListener("click", (event) => {
    if (bench.patch === null || event.target === element || event.pointerType !== "touch") return;
    const { row, column } = spot(event);
    bench.moveTo(Math.round(row - bench.patch.height / 2), Math.round(column - bench.patch.width / 2));
  });
}

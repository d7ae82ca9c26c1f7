/** The controls of the patch: what it shows, its size and its placement. */

import { isProven } from "./patch.js";
import { coverWords, sizeText, threatText } from "./words.js";

const get = (id) => document.getElementById(id);

export function createTools(bench) {
  const { model } = bench;
  get("height").max = model.height;
  get("width").max = model.width;
  get("square").checked = bench.shapes.every(({ height, width }) => height === width);
  listen(bench);
  letSize(bench);
  const drawOthers = createOthers(bench);
  return () => {
    drawOthers();
    get("start").hidden = bench.patch !== null;
    get("tools").hidden = bench.patch === null;
    if (bench.patch !== null) drawPatchTools(bench);
  };
}

function listen(bench) {
  const click = (id, action) => get(id).addEventListener("click", action);
  const begin = (action) => () => {
    action();
    get("patch").focus({ preventScroll: true }); // the pressed button has disappeared
    get("frame").scrollIntoView({ block: "nearest" });
  };
  click("add", begin(() => bench.paint({ kind: bench.fill.kind === "attack" ? "solid" : bench.fill.kind })));
  click("attack", begin(() => bench.startAttack()));
  click("again", () => bench.attackLonger());
  click("shuffle", () => bench.paint({ seed: bench.fill.seed + 1 }));
  click("remove", () => {
    bench.remove();
    get("add").focus();
  });
  click("weakest", () => {
    const { weakest } = bench.picture.answer;
    const row = weakest.row + Math.floor((weakest.height - bench.patch.height) / 2);
    bench.moveTo(row, weakest.column + Math.floor((weakest.width - bench.patch.width) / 2));
  });
  get("color").addEventListener("input", (event) => bench.paint({ color: event.target.value }));
  for (const radio of document.getElementsByName("fill")) {
    radio.addEventListener("change", () => bench.paint({ kind: radio.value }));
  }
}

function letSize(bench) {
  const square = get("square");
  get("height").addEventListener("input", ({ target }) => {
    bench.sizeTo(Number(target.value), square.checked ? Number(target.value) : bench.patch.width);
  });
  get("width").addEventListener("input", ({ target }) => bench.sizeTo(bench.patch.height, Number(target.value)));
  square.addEventListener("change", () => {
    if (square.checked) bench.sizeTo(bench.patch.height, bench.patch.height);
    else bench.draw();
  });
}

/** The list of samples of other classes; several of one class are numbered. */
function createOthers(bench) {
  const select = get("other");
  let listed = [];
  select.addEventListener("change", () => bench.paint({ other: listed[select.selectedIndex] }));
  return () => {
    const { others, other } = bench;
    document.querySelector("input[name=fill][value=other]").disabled = other === null;
    if (others.length !== listed.length || others.some((sample, index) => sample !== listed[index])) {
      listed = others;
      select.replaceChildren(...others.map((sample, index) => new Option(numbered(sample, others.slice(0, index)))));
    }
    select.selectedIndex = listed.indexOf(other);
  };
}

function numbered({ label }, before) {
  const number = 1 + before.filter((sample) => sample.label === label).length;
  return number === 1 ? label : `${label} ${number}`;
}

function drawPatchTools(bench) {
  const { patch, fill, picture, model, attacking } = bench;
  for (const radio of document.getElementsByName("fill")) radio.checked = radio.value === fill.kind;
  for (const detail of document.querySelectorAll(".detail")) detail.hidden = detail.dataset.fill !== fill.kind;
  drawSizes(patch);
  get("attack-info").textContent = attackText(fill.found, attacking, model);
  const over = fill.found === null || fill.found.changed || fill.found.steps >= model.limits.attack_steps;
  get("again").hidden = attacking || over;
  get("weakest").disabled = picture.answer === null;
  const cover = get("cover");
  cover.textContent = picture.answer === null ? "" : coverWords(picture.answer, patch, model);
  cover.dataset.tone = picture.answer !== null && isProven(patch, picture.answer, bench.shapes) ? "good" : "open";
}

function drawSizes({ height, width }) {
  const square = get("square").checked && height === width;
  document.querySelector(".size[data-axis=width]").hidden = square;
  document.querySelector(".size[data-axis=height] span").textContent = square ? "Size" : "Height";
  for (const [id, value] of Object.entries({ height, width })) {
    get(id).value = value;
    get(id).nextElementSibling.value = square ? sizeText({ height, width }) : value;
  }
}

function attackText(found, attacking, model) {
  if (attacking) return "Searching…";
  if (found === null) return `Attacks use patches of at most ${threatText(model)}.`;
  const place = `row ${found.placement.row}, column ${found.placement.column}`;
  return found.changed
    ? `It changed the answer after ${found.steps} steps, at ${place}.`
    : `${found.steps} steps at ${place} did not change the answer.`;
}

/** The classes and how the windows vote for them; pressing one shows its evidence on the picture. */

import { areVotes, averages } from "./scores.js";

const MOST_ROWS = 12; // of many classes, only those with the most votes

const get = (id) => document.getElementById(id);

export function createVotes(bench) {
  const rows = bench.model.classes.map((name, index) => createRow(name, () => toggle(bench, index)));
  get("votes").replaceChildren(...rows.map(({ item }) => item));
  for (const radio of document.getElementsByName("view")) {
    radio.addEventListener("change", () => bench.look({ evidence: radio.value === "evidence" }));
  }
  return () => {
    const clean = bench.picture.answer;
    const shown = bench.patch === null ? clean : bench.patched;
    get("votes").setAttribute("aria-busy", shown === null);
    drawView(bench, shown ?? clean);
    if (shown === null) return; // the bars stay as they are until the answer comes
    const unit = bench.model.score_unit;
    const counted = areVotes(shown.scores, unit);
    const before = averages(clean.scores, unit);
    const now = averages(shown.scores, unit);
    const least = Math.min(0, ...before, ...now);
    const span = Math.max(0, ...before, ...now) - least || 1;
    get("votes-about").textContent = about(bench, counted);
    get("votes-rule").hidden = now[shown.class] === Math.max(...now);
    const ranked = [...now.keys()].sort((one, two) => now[two] - now[one]);
    const kept = [...new Set([shown.class, clean.class, ...ranked])].slice(0, MOST_ROWS);
    rows.forEach((row, index) => {
      row.item.hidden = !kept.includes(index);
      drawRow(row, { before: before[index], now: now[index], least, span, counted });
      row.item.dataset.answer = index === shown.class;
      row.item.dataset.moved = bench.patch !== null;
      const said = index === shown.class ? "the answer, " : "";
      row.button.setAttribute("aria-label", `${row.name}, ${said}${row.value.textContent}: show its evidence`);
    });
  };
}

function toggle(bench, index) {
  const { evidence, classIndex } = bench.view;
  const pressed = evidence && classIndex === index;
  bench.look(pressed ? { evidence: false, classIndex: null } : { evidence: true, classIndex: index });
}

function drawView({ view, model }, answer) {
  for (const radio of document.getElementsByName("view")) {
    radio.checked = (radio.value === "evidence") === view.evidence;
  }
  const index = view.classIndex ?? answer?.class ?? null;
  get("evidence-key").hidden = !view.evidence || answer === null;
  get("evidence-against").hidden = answer !== null && areVotes(answer.scores, model.score_unit);
  get("evidence-class").textContent = index === null ? "" : model.classes[index];
  [...get("votes").children].forEach((item, each) => {
    item.firstChild.setAttribute("aria-pressed", view.evidence && each === index);
  });
}

function about({ model, patch }, counted) {
  const windows = (model.grid[0] * model.grid[1]).toLocaleString("en");
  const what = counted
    ? `Share of the ${windows} small windows that vote for each class.`
    : `Average score over ${windows} small windows.`;
  const mark = patch === null ? "" : " The marks show the picture without the patch.";
  return `${what}${mark} Press a class to see its evidence on the picture.`;
}

function createRow(name, press) {
  const item = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  button.addEventListener("click", press);
  const [label, track, value] = ["name", "track", "value"].map((kind) => part("span", kind));
  label.textContent = name;
  const [bar, mark] = ["bar", "mark"].map((kind) => part("i", kind));
  track.append(bar, mark);
  button.append(label, track, value);
  item.append(button);
  return { name, item, button, bar, mark, value };
}

function part(tag, kind) {
  const element = document.createElement(tag);
  element.className = kind;
  return element;
}

function drawRow({ bar, mark, value }, { before, now, least, span, counted }) {
  const place = (score) => (100 * (score - least)) / span;
  bar.style.left = `${Math.min(place(0), place(now))}%`;
  bar.style.width = `${Math.abs(place(now) - place(0))}%`;
  mark.style.left = `${place(before)}%`;
  value.textContent = counted ? `${(100 * now).toFixed(0)} %` : now.toFixed(1).replace(/^-(?!0\.0$)/, "−").replace(/^-/, "");
}

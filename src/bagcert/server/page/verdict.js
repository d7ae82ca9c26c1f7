/** The answers in words: for the clean picture, for the patched one, and for screen readers. */

import { cleanWords, largestWords, ownWords, patchedWords, spoken } from "./words.js";

const get = (id) => document.getElementById(id);

export function createVerdicts(bench) {
  return () => {
    const clean = bench.picture.answer === null ? null : cleanWords(bench.picture.answer, bench.model);
    const patched = bench.patched === null ? null : patchedWords(bench.picture.answer, bench.patched, bench.patch, bench.model);
    drawClean(get("clean"), bench, clean);
    drawPatched(get("patched"), bench, patched);
    drawCaption(get("caption"), bench, clean, patched);
    announce(bench, clean, patched);
  };
}

function drawClean(card, { picture, model, problem }, words) {
  const known = words !== null;
  card.setAttribute("aria-busy", !known && problem === null);
  fill(card, known ? { ...words, title: picture.answer.name } : waiting(problem));
  const largest = known ? largestWords(picture.answer, model) : { side: "", share: "" };
  card.querySelector(".side").textContent = largest.side;
  card.querySelector(".share").textContent = largest.share;
  setSide(card.querySelector(".proven"), known ? picture.answer.square : 0, model);
  setSide(card.querySelector(".asked"), known && picture.answer.square < model.square ? model.square : 0, model);
  card.querySelector(".own").textContent = known ? ownWords(picture, model) : "";
}

function drawPatched(card, { patch, problem, attacking }, words) {
  card.hidden = patch === null;
  const busy = words === null && problem === null;
  card.setAttribute("aria-busy", busy);
  if (busy && !attacking) fillTitle(card, waiting(null)); // the rest is hidden, not removed, so that nothing below jumps
  else fill(card, words ?? (attacking ? searching() : waiting(problem)));
  card.dataset.blank = busy && !attacking;
}

function drawCaption(caption, bench, clean, patched) {
  const { picture, patch, problem } = bench;
  const shown = patch === null ? clean && { ...clean, title: picture.answer.name } : patched;
  const words = shown ?? (bench.attacking ? searching() : waiting(problem));
  caption.dataset.tone = words.tone;
  caption.querySelector("strong").textContent = words.title;
  caption.querySelector("span").textContent = words.tag;
}

/** Announce an answer once it is known, and only if it is new. */
function announce({ picture, patch }, clean, patched) {
  const known = patch === null ? clean !== null : patched !== null;
  if (!known) return;
  const text =
    patch === null
      ? `${picture.answer.name}. ${clean.tag}. ${clean.proof}`
      : `With the patch: ${patched.title}. ${patched.tag}. ${patched.proof}`;
  if (get("live").textContent !== spoken(text)) get("live").textContent = spoken(text);
}

function fill(card, words) {
  fillTitle(card, words);
  for (const part of ["tag", "proof", "more"]) card.querySelector(`.${part}`).textContent = words[part];
}

function fillTitle(card, { tone, title }) {
  card.dataset.tone = tone;
  card.querySelector(".class").textContent = title;
}

function setSide(element, side, model) {
  element.style.height = `${(100 * side) / model.height}%`;
  element.style.width = `${(100 * side) / model.width}%`;
}

function waiting(problem) {
  return problem === null
    ? { tone: "plain", title: "Checking…", tag: "", proof: "", more: "" }
    : { tone: "plain", title: "No answer", tag: "", proof: "", more: "See the message above." };
}

function searching() {
  return {
    tone: "plain",
    title: "Attacking…",
    tag: "",
    proof: "Searching for the most damaging pattern where the proof is weakest.",
    more: "This takes a few seconds.",
  };
}

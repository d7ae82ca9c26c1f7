/** Starts the page: asks what is served, then creates the state and its views. */

import { Bench } from "./bench.js";
import { createGallery, readSamples } from "./gallery.js";
import { askModel, askSamples, useToken } from "./server.js";
import { createStage } from "./stage.js";
import { createTools } from "./tools.js";
import { createVerdicts } from "./verdict.js";
import { createVotes } from "./votes.js";
import { sizeText, threatText } from "./words.js";

const get = (id) => document.getElementById(id);

async function start() {
  const model = await askModel();
  const samples = await readSamples(await askSamples(), model);
  const views = [];
  const bench = new Bench(model, samples, () => views.forEach((draw) => draw()));
  showInfo(model);
  for (const create of [createStage, createTools, createVerdicts, createVotes, createGallery]) {
    views.push(create(bench));
  }
  views.push(() => showProblem(bench.problem));
  get("bench").hidden = false;
  await bench.open();
}

function showInfo(model) {
  const size = sizeText(model);
  get("threat").textContent = `${threatText(model)} pixels`;
  get("served").textContent = `${model.name} · ${model.classes.length} classes · ${size} pixels`;
  get("info").textContent =
    `Model ${model.name}, rule ${model.rule}, patch ${model.threat_in_words}. Scores are computed by ` +
    `${model.arithmetic}; the proofs hold for this program. ` +
    `Weights ${model.weights_sha256.slice(0, 12)}, bagcert ${model.version}.`;
}

function showProblem(message) {
  get("problem").hidden = message === null;
  if (get("problem").textContent !== (message ?? "")) get("problem").textContent = message ?? "";
}

function startOrAsk(refused = null) {
  start().catch((error) => {
    get("token-form").hidden = error.status !== 401;
    showProblem(error.status === 401 ? refused : error.message);
    if (error.status === 401) get("token").focus();
  });
}

get("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  get("token-form").hidden = true;
  useToken(get("token").value);
  startOrAsk("The server does not accept this token.");
});

startOrAsk();

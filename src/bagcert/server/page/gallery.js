/** Where pictures come from: the server's samples, or a file that is chosen, dropped or pasted. */

import { outcome } from "./alerts.js";
import { decode } from "./pixels.js";
import { frame } from "./server.js";

const get = (id) => document.getElementById(id);

/** The samples with their pixels. */
export async function readSamples(listed, model) {
  return Promise.all(
    listed.map(async ({ name, blob }) => ({
      label: name,
      file: null,
      answer: null,
      blob,
      pixels: await decode(blob, model.limits.pixels),
    })),
  );
}

export function createGallery(bench) {
  const { samples } = bench;
  const buttons = samples.map((sample) => createThumb(sample, () => bench.choose(sample)));
  get("samples").replaceChildren(...buttons.map((button) => listItem(button)));
  letChoose(bench);
  letDrop(bench);
  return () => {
    samples.forEach((sample, index) => drawThumb(buttons[index], sample, index, sample === bench.picture));
    get("alert-legend").hidden = !samples.some(({ answer }) => typeof answer?.alert === "boolean");
  };
}

function createThumb({ blob }, press) {
  const button = document.createElement("button");
  const image = new Image();
  image.src = URL.createObjectURL(blob);
  image.alt = "";
  button.type = "button";
  button.className = "thumb";
  button.addEventListener("click", press);
  button.append(image);
  return button;
}

function drawThumb(button, { label, answer }, index, chosen) {
  const known = answer === null ? "" : `, ${outcome(answer)}`;
  button.setAttribute("aria-label", `Sample ${index + 1}: ${label}${known}`);
  button.setAttribute("aria-pressed", chosen);
  button.title = `${label}${known}`;
  button.dataset.proven = answer === null ? "" : answer.certified;
  button.dataset.outcome = answer === null ? "" : outcome(answer);
}

function listItem(content) {
  const item = document.createElement("li");
  item.append(content);
  return item;
}

function letChoose(bench) {
  get("file").addEventListener("change", ({ target }) => {
    if (target.files.length > 0) take(bench, target.files[0]);
    target.value = ""; // so that the same file can be chosen again
  });
  document.addEventListener("paste", (event) => {
    const file = [...(event.clipboardData?.files ?? [])].find(({ type }) => type.startsWith("image/"));
    if (file !== undefined) take(bench, file);
  });
}

function letDrop(bench) {
  const holdsFile = (event) => event.dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", (event) => {
    if (!holdsFile(event)) return;
    event.preventDefault();
    get("drop").hidden = false;
  });
  document.addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) get("drop").hidden = true;
  });
  document.addEventListener("drop", (event) => {
    if (!holdsFile(event)) return;
    event.preventDefault();
    get("drop").hidden = true;
    if (event.dataTransfer.files.length > 0) take(bench, event.dataTransfer.files[0]);
  });
}

/** Show and certify a file as the network sees it; the server says how, so that both see the same. */
async function take(bench, file) {
  const before = bench.picture;
  try {
    const pixels = await decode(await frame(file), bench.model.limits.pixels);
    if (bench.picture === before) bench.choose({ label: null, file, pixels, answer: null });
  } catch (error) {
    bench.fail(error);
  }
}

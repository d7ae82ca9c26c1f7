/** What is known, in words. A proof is claimed only if the server gave one; an answer that merely held is called that. */

import { cleanAlertWords, patchedAlertWords } from "./alerts.js";
import { fits, isProven, shapesOf } from "./patch.js";

export const sizeText = ({ height, width }) => `${height}×${width}`;
export const threatText = (model) => shapesOf(model.threat).map(sizeText).join(" or ");

/** For screen readers, which read "×" as "times". */
export const spoken = (text) => text.replace(/(\d)×(\d)/g, "$1 by $2");

/** The clean picture: tone, tag, what is proven, and what that means. */
export function cleanWords(answer, model) {
  const threat = threatText(model);
  if (answer.certified) {
    return {
      tone: "good",
      tag: "Proven",
      proof: `No ${threat} patch anywhere can change this.`,
      more: `This covers all ${countPlaces(model)} places where it could sit and everything it could show.`,
    };
  }
  const alert = cleanAlertWords(answer, threat);
  if (alert !== null) return alert;
  const proven = sizeText({ height: answer.square, width: answer.square });
  return {
    tone: "open",
    tag: "Not proven",
    proof: `A ${threat} patch might change this: there is no proof against it.`,
    more:
      answer.square > 0
        ? `Smaller patches are ruled out: no ${proven} patch anywhere can change this.`
        : "Not even a change to a single pixel is ruled out. That does not mean that one would succeed.",
  };
}

/** The picture with a patch, compared with what is proven about the picture without it. */
export function patchedWords(clean, patched, patch, model) {
  const shapes = shapesOf(model.threat);
  const stayed = clean.class === patched.class;
  const covered = isProven(patch, clean, shapes);
  const words = {
    ...(covered ? wordsUnderProof(stayed) : wordsWithoutProof(clean, patched, stayed)),
    title: stayed ? `Still ${patched.name}` : `Now ${patched.name}`,
    proof: covered ? promise(clean, patch, model, stayed) : noPromise(clean, patch, shapes, model),
  };
  return covered ? words : { ...words, ...patchedAlertWords(clean, patched, patch, model) };
}

function wordsUnderProof(stayed) {
  return stayed
    ? { tone: "good", tag: "Held, as proven", more: "Move it, resize it within the proof, paint it: the answer will hold." }
    : {
        tone: "bad",
        tag: "Contradicts the proof",
        more: "The server called this impossible, so there is a bug. Please report it together with this picture.",
      };
}

function wordsWithoutProof(clean, patched, stayed) {
  const careful = patched.certified
    ? "The patched picture has a proof of its own, so a system that trusts only proven answers would accept this one."
    : "The patched picture has no proof of its own, so a system that trusts only proven answers would hold back.";
  return stayed
    ? { tone: "open", tag: "Held, not proven", more: `This patch failed, but that proves nothing: another one may succeed. ${careful}` }
    : { tone: "bad", tag: "Changed", more: `The patch turned ${clean.name} into ${patched.name}. ${careful}` };
}

function promise(clean, patch, model, stayed) {
  const size = clean.certified ? threatText(model) : sizeText({ height: clean.square, width: clean.square });
  return stayed
    ? `This ${sizeText(patch)} patch is within the proven ${size}: nothing it shows can change the answer.`
    : `This ${sizeText(patch)} patch is within the proven ${size}, and yet the answer changed.`;
}

function noPromise(clean, patch, shapes, model) {
  if (!fits(patch, shapes)) {
    return `This ${sizeText(patch)} patch is larger than ${threatText(model)}: no proof covers it.`;
  }
  return `There is no proof against ${sizeText(patch)} patches on this picture.`;
}

/** Under the sliders: does the proof for the clean picture cover this size? */
export function coverWords(clean, patch, model) {
  const shapes = shapesOf(model.threat);
  if (isProven(patch, clean, shapes)) return `${sizeText(patch)}: covered by the proof for this picture.`;
  return fits(patch, shapes)
    ? `${sizeText(patch)}: not proven for this picture.`
    : `${sizeText(patch)}: larger than ${threatText(model)}, so no proof covers it.`;
}

/** The largest proven square, and the largest that this server tries. */
export function largestWords(answer, model) {
  const side = answer.square;
  const share = ((100 * side * side) / (model.height * model.width)).toFixed(1);
  if (side === 0) return { side: "none", share: `tried up to ${model.square}×${model.square}` };
  const most = side === model.square ? "the largest this server tries" : `tried up to ${model.square}×${model.square}`;
  return { side: `${side}×${side}`, share: `${share} % of the picture; ${most}` };
}

/** The visitor's own file: what the network sees of it, and what is proven in its own pixels. */
export function ownWords({ file, label, answer }, model) {
  if (file === null) return label === null ? "" : labelWords(label, answer, model);
  const { height, width, framed, seen, patch } = answer.original;
  if (!framed) return "";
  const part = seen.height === height && seen.width === width ? "it" : `its middle ${sizeText(seen)}`;
  const shown = `Your picture has ${sizeText({ height, width })} pixels; the network sees ${part} at
    ${sizeText(model)}, as shown here.`;
  if (answer.threat_original === null) return `${shown} In its own pixels, nothing is proven.`;
  if (patch === null) return shown;
  return `${shown} In its own pixels, no ${patch.replace("x", "×")} patch anywhere can change the answer.`;
}

function labelWords(label, answer, model) {
  if (!model.classes.includes(label)) return `The sample is ${label}.`;
  return answer.name === label
    ? "The answer is right: it is the label in the data set."
    : `The answer is wrong: the label in the data set is ${label}. A proof says that an answer stays, not that it is right.`;
}

function countPlaces(model) {
  const counts = shapesOf(model.threat).map(({ height, width }) => [model.height - height + 1, model.width - width + 1]);
  return counts.reduce((sum, [rows, columns]) => sum + rows * columns, 0).toLocaleString("en");
}

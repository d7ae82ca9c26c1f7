/** Alerts in words: the promise "this answer or an alert", and a picture that raises one. */

import { fits, shapesOf } from "./patch.js";

const WARNING = "An attacker can always provoke an alert.";

/** In a word, what is known of a clean picture: one of four outcomes. */
export function outcome(answer) {
  if (answer.certified) return "proven";
  return answer.alert ? "alert" : answer.detectable ? "answer or alert" : "not proven";
}

/** A clean picture that is not proven: alerted or detectable; null if it is neither. */
export function cleanAlertWords(answer, threat) {
  if (answer.alert) {
    return {
      tone: "bad",
      tag: "Alert",
      proof: "Without some part of the picture that a patch could reach, another class leads: do not use this answer.",
      more: `That does not mean that there is a patch: some clean pictures raise an alert, too. ${WARNING}`,
    };
  }
  if (answer.detectable) {
    return {
      tone: "good",
      tag: "Answer or alert",
      proof: `No ${threat} patch anywhere can change this without an alert.`,
      more: `A patch might change the answer, but then an alert is raised. ${WARNING}`,
    };
  }
  return null;
}

/** A patched picture, if it raises an alert or the clean one had the promise; null if alerts say nothing about it. */
export function patchedAlertWords(clean, patched, patch, model) {
  const stayed = clean.class === patched.class;
  const promised = clean.detectable === true && fits(patch, shapesOf(model.threat));
  if (patched.alert) {
    return {
      tone: promised ? "good" : "open",
      tag: promised ? "Alert, as promised" : "Alert",
      proof: stayed ? "The answer is the same, but the picture raises an alert." : "The answer changed, and the picture raises an alert.",
      more: `A system that heeds alerts does not use this answer. ${WARNING}`,
    };
  }
  if (!promised) return null;
  return stayed
    ? { tone: "good", tag: "Held, as promised", proof: "The promise is this answer or an alert.", more: "Paint it: the answer will hold, or an alert is raised." }
    : {
        tone: "bad",
        tag: "Contradicts the proof",
        proof: "The answer changed without an alert.",
        more: "The server called this impossible, so there is a bug. Please report it together with this picture.",
      };
}

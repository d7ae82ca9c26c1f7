/** Requests to the server. Every failure becomes an error whose message can be shown as it is. */

const TRIES = 4; // while the server is busy

/** What a proof holds for: that of a clean picture says nothing about answers by another program or other weights. */
const HOLDS_FOR = ["rule", "threat", "arithmetic", "weights_sha256"];

const PRINTABLE = /^[\x20-\x7e]*$/; // what a header may carry
let token = null;

export function useToken(text) {
  token = text;
}

export class RequestError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function askModel() {
  return (await ask("v1/model")).json();
}

/** The samples with their pictures as files; fetched here, not by the img elements, since a token may be needed. */
export async function askSamples() {
  const listed = await (await ask("v1/samples")).json();
  return Promise.all(
    listed.map(async ({ name, url }) => ({ name, blob: await (await ask(url.replace(/^\//, ""))).blob() })),
  );
}

/** One answer per picture, with its score map, from the model that this page was opened with. */
export async function certify(blobs, model) {
  const form = new FormData();
  for (const blob of blobs) form.append("files", blob, "picture");
  try {
    const found = await (await ask("v1/certify?scores=true", { method: "POST", body: form })).json();
    if (found.model === model.name && HOLDS_FOR.every((fact) => found[fact] === model[fact])) {
      return found.answers.map((answer) => ({ ...answer, ...answer.network })); // the page shows what the network sees
    }
  } catch (error) {
    if (error.status !== 413 || blobs.length === 1) throw error;
    const half = Math.ceil(blobs.length / 2); // too much for one request
    return [...(await certify(blobs.slice(0, half), model)), ...(await certify(blobs.slice(half), model))];
  }
  throw new RequestError(0, "The server has switched to another model, program, rule or patch. Please reload this page.");
}

/** What the network sees of a picture, as a file. */
export async function frame(blob) {
  const form = new FormData();
  form.append("file", blob, "picture");
  return (await ask("v1/frame", { method: "POST", body: form })).blob();
}

/** A patch of this size where the proof is weakest, by gradient descent. */
export async function attack(blob, { height, width }, steps) {
  const form = new FormData();
  form.append("file", blob, "picture");
  const query = new URLSearchParams({ patch: `${height}x${width}`, steps });
  return (await ask(`v1/attack?${query}`, { method: "POST", body: form })).json();
}

async function ask(path, options = {}) {
  if (token !== null && !PRINTABLE.test(token)) throw new RequestError(401, "A token has printable ASCII characters only.");
  const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
  for (let left = TRIES; ; left--) {
    const response = await fetch(path, { ...options, headers }).catch(() => {
      throw new RequestError(0, "The server cannot be reached. Is it still running?");
    });
    if (response.ok) return response;
    if (response.status !== 503 || left === 1) throw new RequestError(response.status, await reason(response));
    const seconds = Number(response.headers.get("Retry-After")) || 1;
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  }
}

async function reason(response) {
  const body = await response.json().catch(() => ({}));
  return typeof body.detail === "string" ? `The server says: ${body.detail}` : `The server failed (${response.status}).`;
}

/** What a patch shows: a fill and a size become a small picture, or null if there is none yet. */

import { cut } from "./pixels.js";
import { inTheMiddle } from "./patch.js";

export function patternOf(fill, { height, width }) {
  return PATTERNS[fill.kind](fill, height, width);
}

const PATTERNS = {
  solid: ({ color }, height, width) => {
    const levels = [1, 3, 5].map((start) => parseInt(color.slice(start, start + 2), 16));
    return pattern(height, width, () => levels);
  },
  noise: ({ seed }, height, width) => {
    const next = randomBytes(seed);
    return pattern(height, width, () => [next(), next(), next()]);
  },
  other: ({ other }, height, width) =>
    other === null ? null : cut(other.pixels, inTheMiddle(height, width, other.pixels)),
  attack: ({ found }, height, width) =>
    found !== null && found.pattern.height === height && found.pattern.width === width ? found.pattern : null,
};

function pattern(height, width, levelsOf) {
  const data = new Uint8ClampedArray(4 * height * width).fill(255);
  for (let pixel = 0; pixel < height * width; pixel++) data.set(levelsOf(), 4 * pixel);
  return { width, height, data };
}

/** Bytes from a seed, by xorshift: the same patch shows the same noise while it is dragged. */
function randomBytes(seed) {
  let state = (seed * 2654435761 + 1) >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state >>> 24;
  };
}

/** Score maps: the average of each class, and one class as a colored layer. */

const FOR = [0, 158, 115];
const AGAINST = [213, 94, 0]; // distinguishable by color-blind people, too
const STRONGEST = 0.85; // opacity of the strongest scores

/** For each class, the average over all windows, with a unit score as 1. */
export function averages(scores, unit) {
  return scores.map((map) => map.flat().reduce((sum, score) => sum + score, 0) / (unit * map.length * map[0].length));
}

/** Whether these are plain votes, 0 or 1: then an average is a share of the windows. */
export function areVotes(scores, unit) {
  return unit === 1 && scores.every((map) => map.every((line) => line.every((score) => score === 0 || score === 1)));
}

/** The size of score that counts as strong: 97 of 100 in the picture are weaker. */
export function strength(scores) {
  const sizes = scores.flat(2).map(Math.abs).sort((a, b) => a - b);
  return sizes[Math.floor(0.97 * (sizes.length - 1))] || 1;
}

/** One class's map as pixels to draw over the picture. */
export function layer(map, strong) {
  const height = map.length;
  const width = map[0].length;
  const data = new Uint8ClampedArray(4 * height * width);
  map.flat().forEach((score, index) => {
    const opacity = STRONGEST * Math.min(1, Math.abs(score) / strong);
    data.set([...(score > 0 ? FOR : AGAINST), Math.round(255 * opacity)], 4 * index);
  });
  return { width, height, data };
}

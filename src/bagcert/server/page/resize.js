/**
 * Resize exactly as the server does: each new pixel is the average over its area, rounded half up. Along one axis, in
 * units of 1/(inputs outputs) of it, input i is [i outputs, (i + 1) outputs) and output o is
 * [o inputs, (o + 1) inputs); a weight is the length of their overlap. All sums are integers below 2**53, so exact.
 */
export function resize(pixels, width, height) {
  if (pixels.width === width && pixels.height === height) return pixels;
  const data = new Uint8ClampedArray(4 * width * height).fill(255);
  const total = pixels.width * pixels.height;
  const columns = Array.from({ length: width }, (_, o) => weights(o, pixels.width, width));
  const sums = new Float64Array(3 * pixels.width);
  for (let row = 0; row < height; row++) {
    sumRows(sums, pixels, weights(row, pixels.height, height));
    columns.forEach(({ first, shares }, column) => {
      for (let channel = 0; channel < 3; channel++) {
        let sum = 0;
        shares.forEach((share, step) => (sum += share * sums[3 * (first + step) + channel]));
        data[4 * (row * width + column) + channel] = Math.floor((2 * sum + total) / (2 * total));
      }
    });
  }
  return { width, height, data };
}

/** Write into `sums` the weighted sum, per column, of the rows that one new row is made from. */
function sumRows(sums, { width, data }, { first, shares }) {
  sums.fill(0);
  shares.forEach((share, step) => {
    const start = 4 * (first + step) * width;
    for (let column = 0; column < width; column++) {
      for (let channel = 0; channel < 3; channel++) {
        sums[3 * column + channel] += share * data[start + 4 * column + channel];
      }
    }
  });
}

function weights(output, inputs, outputs) {
  const first = Math.floor((output * inputs) / outputs);
  const last = Math.ceil(((output + 1) * inputs) / outputs) - 1;
  const shares = [];
  for (let input = first; input <= last; input++) {
    const end = Math.min((output + 1) * inputs, (input + 1) * outputs);
    shares.push(end - Math.max(output * inputs, input * outputs));
  }
  return { first, shares };
}

/** Pictures as plain pixels: { width, height, data }, four bytes per pixel, always opaque. */

/** A file's pixels, upright and as stored: no color management, transparent parts on white. */
export async function decode(blob, mostPixels) {
  const bitmap = await createImageBitmap(blob, { colorSpaceConversion: "none" }).catch(() => {
    throw new Error("The browser cannot read this file as a picture. PNG, JPEG and WebP work best.");
  });
  const { width, height } = bitmap;
  if (width * height > mostPixels) {
    const size = `${width * height} pixels`;
    throw new Error(`This picture has ${size}, but the server accepts at most ${mostPixels}. Choose a smaller one.`);
  }
  const context = canvasOf(width, height).getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  return { width, height, data: context.getImageData(0, 0, width, height).data };
}

/** The pixels as a PNG file: nothing is lost, so the server certifies exactly what is shown. */
export function encode(pixels) {
  const canvas = canvasOf(pixels.width, pixels.height);
  draw(canvas, pixels);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

export function draw(canvas, { width, height, data }) {
  canvas.width = width;
  canvas.height = height;
  canvas.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(data), width, height), 0, 0);
}

/** A rectangle of a picture, as a picture. */
export function cut({ width, data }, { row, column, height, width: across }) {
  const out = new Uint8ClampedArray(4 * height * across);
  for (let line = 0; line < height; line++) {
    const from = 4 * ((row + line) * width + column);
    out.set(data.subarray(from, from + 4 * across), 4 * line * across);
  }
  return { width: across, height, data: out };
}

/** A copy of the picture with another one pasted onto it. */
export function paste(pixels, pattern, row, column) {
  const data = new Uint8ClampedArray(pixels.data);
  for (let line = 0; line < pattern.height; line++) {
    const from = 4 * line * pattern.width;
    data.set(pattern.data.subarray(from, from + 4 * pattern.width), 4 * ((row + line) * pixels.width + column));
  }
  return { width: pixels.width, height: pixels.height, data };
}

/** As a network with one channel sees it; the weights are those of the server's decoder. */
export function toGrey({ width, height, data }) {
  const grey = new Uint8ClampedArray(data);
  for (let at = 0; at < data.length; at += 4) {
    const level = (19595 * data[at] + 38470 * data[at + 1] + 7471 * data[at + 2] + 32768) >> 16;
    grey.fill(level, at, at + 3);
  }
  return { width, height, data: grey };
}

function canvasOf(width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  return canvas;
}

/** Where a patch lies: { row, column, height, width } in the network's pixels, always inside the picture. */

export function moveTo(patch, row, column, size) {
  return {
    ...patch,
    row: clamp(row, 0, size.height - patch.height),
    column: clamp(column, 0, size.width - patch.width),
  };
}

/** Resize around the same middle pixel, as far as the border allows, so that growing and shrinking cancel out. */
export function sizeTo(patch, height, width, size) {
  const sized = { ...patch, height: clamp(height, 1, size.height), width: clamp(width, 1, size.width) };
  const row = patch.row + Math.floor(patch.height / 2) - Math.floor(sized.height / 2);
  const column = patch.column + Math.floor(patch.width / 2) - Math.floor(sized.width / 2);
  return moveTo(sized, row, column, size);
}

export function inTheMiddle(height, width, size) {
  const patch = { row: 0, column: 0, height: size.height, width: size.width };
  return sizeTo(patch, height, width, size);
}

/** The threat as shapes: "5x5,2x12" is [{ height: 5, width: 5 }, { height: 2, width: 12 }]. */
export function shapesOf(threat) {
  return threat.split(",").map((shape) => {
    const [height, width] = shape.split("x").map(Number);
    return { height, width };
  });
}

export function fits(patch, shapes) {
  return shapes.some(({ height, width }) => patch.height <= height && patch.width <= width);
}

/** Whether the certificate of the clean picture covers a patch of this size. */
export function isProven(patch, clean, shapes) {
  const square = { height: clean.square, width: clean.square };
  return fits(patch, clean.certified ? [...shapes, square] : [square]);
}

function clamp(value, least, most) {
  return Math.min(Math.max(value, least), most);
}

/** All visible text of the page with too little contrast, as "ratio: text"; backgrounds are blended. */
() => {
  const context = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", {
    willReadFrequently: true,
  });
  const levels = (colors) => {
    context.clearRect(0, 0, 1, 1);
    for (const color of colors) {
      context.fillStyle = color;
      context.fillRect(0, 0, 1, 1);
    }
    return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const luminance = (color) => {
    const [red, green, blue] = color
      .map((level) => level / 255)
      .map((level) => (level <= 0.04045 ? level / 12.92 : ((level + 0.055) / 1.055) ** 2.4));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const grounds = (element) => {
    const found = [];
    for (let each = element; each !== null; each = each.parentElement) {
      found.unshift(getComputedStyle(each).backgroundColor);
    }
    return found;
  };
  const poor = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim();
    const element = walker.currentNode.parentElement;
    if (text === "" || !element.checkVisibility() || element.closest(".hidden, .skip, noscript, option") !== null) continue;
    const below = grounds(element);
    const [ink, ground] = [levels([...below, getComputedStyle(element).color]), levels(below)].map(luminance);
    const ratio = (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
    if (ratio < 4.5) poor.push(`${ratio.toFixed(2)}: ${text}`);
  }
  return poor;
}

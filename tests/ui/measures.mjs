// Measures of a page: the contrast of its texts, and its longest task.

// The visible texts with their contrast to the ground below them, by WCAG 2.
export const contrasts = (tab) => tab.evaluate(() => {
  const channel = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const parsed = (colour) => {
    const [red, green, blue, alpha = 1] = colour.match(/[\d.]+/g).map(Number);
    return { rgb: [red, green, blue], alpha };
  };
  const luminance = (rgb) => {
    const [red, green, blue] = rgb.map((value) => channel(value / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const { rgb, alpha } = parsed(getComputedStyle(at).backgroundColor);
      if (alpha === 1) return rgb;
    }
    return [255, 255, 255];
  };
  const found = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || !element.checkVisibility() || element.closest(".visually-hidden, .skip, :disabled, .old")) continue;
    const colour = parsed(getComputedStyle(element).color).rgb;
    const [one, other] = [luminance(colour), luminance(ground(element))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    const name = `${element.tagName}.${element.className}`;
    if (!found.has(name) || found.get(name).ratio > ratio) found.set(name, { name, text: node.textContent.slice(0, 30), ratio });
  }
  return [...found.values()];
});

export const observeTasks = (tab) => tab.evaluate(() => {
  window.tasks = [0];
  new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((entry) => entry.duration))).observe({ type: "longtask" });
});

export const longestTask = (tab) => tab.evaluate(async () => {
  await new Promise((resolve) => { setTimeout(resolve, 100); });
  return Math.max(...window.tasks);
});

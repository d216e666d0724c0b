// Builds elements. Texts become text nodes, so a value from a queue is never markup.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Keeps what a field has over a reload of the page: in this tab alone,.
export function kept(name, field) {
  const before = sessionStorage.getItem(name);
  if (before !== null) field.value = before;
  // The menu has other values now.
  if (field.localName === "select" && field.selectedIndex < 0) field.value = "";
  field.addEventListener("input", () => keep(name, field.value));
  return field;
}

export function keep(name, text) {
  try {
    sessionStorage.setItem(name, text);
  } catch {
    // The browser has no more room. The page works without.
  }
}

// Reads a short text to people who cannot see the page.
export function announce(text) {
  document.getElementById("status").textContent = text;
}

export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

// The time between two moments in its two largest units: "3 d 4 h".
export function span(milliseconds) {
  let seconds = Math.max(0, Math.round(milliseconds / 1000));
  const parts = [];
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]) {
    const number = Math.floor(seconds / length);
    seconds -= number * length;
    if (number > 0 && parts.length < 2) parts.push(`${number} ${unit}`);
    else if (parts.length > 0) break;
  }
  return parts.join(" ") || "0 s";
}

// The time of a moment in UTC, as in the logs.
export function time(moment) {
  return new Date(moment).toISOString().slice(11, 19);
}

export function ago(moment) {
  return moment ? span(Date.now() - Date.parse(moment)) : "unknown";
}

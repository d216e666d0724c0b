// Requests to the server of this page.

const TIMEOUT = 60_000;

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, { signal: AbortSignal.timeout(TIMEOUT), ...options });
  } catch (error) {
    document.getElementById("lost").hidden = error.name === "AbortError";
    throw error.name === "AbortError" ? error : new Error("The command does not respond.", { cause: error });
  }
  document.getElementById("lost").hidden = true;
  // Only a request without the token of this start gets a text.
  const isOutdated = response.status === 403 && response.headers.get("content-type") !== "application/json";
  document.getElementById("restarted").hidden = !isOutdated;
  if (response.status === 204) return null;
  if (response.headers.get("content-type") !== "application/json") throw new Error((await response.text()).trim());
  const value = await response.json();
  if (!response.ok) throw new Error(value.error);
  return value;
}

document.getElementById("reload").addEventListener("click", () => location.reload());

export const read = (path, options = {}) => ask(path, options);

export const send = (path, value = {}, options = {}) => ask(path, {
  method: "POST",
  headers: { "content-type": "application/json", "x-requeue-ui": "1" },
  body: JSON.stringify(value),
  ...options,
});

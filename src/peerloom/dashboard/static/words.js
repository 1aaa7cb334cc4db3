// Figures and times as people read them.

const WHOLE = new Intl.NumberFormat("en");

export const whole = (value) =>
  value === null || value === undefined ? "–" : WHOLE.format(Math.round(value));

export const figure = (value, digits = 4) =>
  value === null || value === undefined ? "–" : value.toFixed(digits);

// A part of the whole, 0 to 1; "?" for what isn't known.
export const percent = (part) =>
  part === null || part === undefined ? "?" : `${Math.round(100 * part)}%`;

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let place = 0;
  while (value >= 1000 && place < units.length - 1) {
    value /= 1000;
    place += 1;
  }
  return `${value.toFixed(place ? 1 : 0)} ${units[place]}`;
}

export function clock(text) {
  if (!text) return "–";
  const time = new Date(text);
  const sameDay = time.toDateString() === new Date().toDateString();
  const shown = time.toLocaleTimeString("en-GB");
  return sameDay ? shown : `${time.toLocaleDateString("en-CA")} ${shown}`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

export const plural = (count, noun) => `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;

export const spaced = (word) => (word ?? "").replaceAll("_", " ");

export const byName = (one, other) => one.name.localeCompare(other.name, "en", { numeric: true });

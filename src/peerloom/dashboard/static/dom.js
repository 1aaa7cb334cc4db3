// Elements made by functions, and a page brought up to date in place: focus, selection and scrolling stay.

export function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(
    ...children.flat(3).filter((child) => child !== null && child !== undefined && child !== ""),
  );
  return element;
}

// The same for drawings; `children` may be texts.
export function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined));
  return element;
}

// Makes `old` look like `fresh`. An element with data-keep is left alone where it stands.
export function patch(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName || keyOf(old) !== keyOf(fresh)) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.hasAttribute?.("data-keep")) return;
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  patchChildren(old, [...fresh.childNodes]);
}

export function patchChildren(parent, fresh) {
  const before = [...parent.childNodes];
  fresh.forEach((child, place) => {
    if (place < before.length) patch(before[place], child);
    else parent.append(child);
  });
  before.slice(fresh.length).forEach((child) => child.remove());
}

function keyOf(node) {
  return node.getAttribute?.("data-key") ?? "";
}

export function table(heads, rows, caption) {
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      null,
      h("caption", { class: "hidden" }, caption),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          heads.map((head) => h("th", { scope: "col", class: numeric(head) }, head.replace("#", ""))),
        ),
      ),
      h(
        "tbody",
        null,
        rows.map((row) =>
          h(
            "tr",
            { class: row.kind },
            row.cells.map((cell, place) =>
              h(place ? "td" : "th", { scope: place ? null : "row", class: numeric(heads[place]) }, cell),
            ),
          ),
        ),
      ),
    ),
  );
}

// A head that begins with # stands over numbers.
function numeric(head) {
  return head.startsWith("#") ? "number" : null;
}

export function empty(title, ...what) {
  return h(
    "div",
    { class: "empty" },
    h("p", { class: "title" }, title),
    ...what.map((line) => h("p", null, line)),
  );
}

export const code = (text) => h("code", null, text);

export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h(
    "dl",
    { class: "facts" },
    shown.map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))),
  );
}

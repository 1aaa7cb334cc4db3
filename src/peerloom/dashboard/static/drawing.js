// A canvas to draw on, and what a model of small pictures gets of it: a white line on black.

const SIDE = 280;
// By the pixels of a side, at most: which part stays empty around a drawing, how many pixels a line covers.
const STYLES = [
  { most: 16, margin: 0, pen: 1.1 },
  { most: Infinity, margin: 4 / 28, pen: 2 },
];
const styleOf = ({ width, height }) => STYLES.find(({ most }) => Math.max(width, height) <= most);

// The height and width of a model's pictures, and their channels; null where it doesn't take pictures.
export function pictureOf(input) {
  const shape = input?.shape ?? [];
  if (input?.is_text || shape.length < 2 || shape.length > 3) return null;
  const [height, width] = shape.slice(-2);
  const channels = shape.length === 3 ? shape[0] : 0;
  return [0, 1, 3].includes(channels) && height > 1 && width > 1 ? { height, width, channels } : null;
}

export function makeCanvas(picture) {
  const canvas = document.createElement("canvas");
  canvas.width = SIDE;
  canvas.height = Math.round((SIDE * picture.height) / picture.width);
  canvas.className = "drawing";
  canvas.setAttribute("role", "img");
  canvas.setAttribute(
    "aria-label",
    "Draw here with a pointer. Without one, write the values or choose a file.",
  );
  wipe(canvas);
  return canvas;
}

export function wipe(canvas) {
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "black";
  context.fillRect(0, 0, canvas.width, canvas.height);
  canvas.dataset.drawn = "";
}

// Draws while a pointer is down; `changed` is called after each line.
export function followPointer(canvas, picture, changed) {
  const lineWidth = (SIDE * styleOf(picture).pen) / picture.width;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  let last = null;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [
      ((event.clientX - box.left) * canvas.width) / box.width,
      ((event.clientY - box.top) * canvas.height) / box.height,
    ];
  };
  const lineTo = (to) => {
    Object.assign(context, { strokeStyle: "white", lineWidth, lineCap: "round", lineJoin: "round" });
    context.beginPath();
    context.moveTo(...last);
    context.lineTo(...to);
    context.stroke();
    last = to;
    canvas.dataset.drawn = "yes";
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    last = place(event);
    lineTo(last);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (last) lineTo(place(event));
  });
  for (const end of ["pointerup", "pointercancel"])
    canvas.addEventListener(end, () => {
      if (last) changed();
      last = null;
    });
}

// Rows of brightness, 0 to 1: what was drawn is cut out and scaled to fill the picture, as the digits are that
// models learn from. A picture with colours is taken as it stands.
export function brightness(canvas, picture) {
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const { width, height } = canvas;
  const { data } = context.getImageData(0, 0, width, height);
  const lit = (x, y) => data[4 * (y * width + x)] / 255;
  const cut = picture.channels === 3 ? { left: 0, top: 0, width, height } : bounds(lit, width, height);
  const most = picture.channels === 3 ? 1 : 1 - 2 * styleOf(picture).margin;
  const scale = Math.min((picture.width * most) / cut.width, (picture.height * most) / cut.height);
  const small = document.createElement("canvas");
  small.width = picture.width * 8;
  small.height = picture.height * 8;
  const into = small.getContext("2d", { willReadFrequently: true });
  const [w, h] = [cut.width * scale * 8, cut.height * scale * 8];
  into.fillRect(0, 0, small.width, small.height);
  into.drawImage(
    canvas,
    cut.left,
    cut.top,
    cut.width,
    cut.height,
    (small.width - w) / 2,
    (small.height - h) / 2,
    w,
    h,
  );
  return means(into.getImageData(0, 0, small.width, small.height).data, small.width, picture);
}

function bounds(lit, width, height) {
  let [left, top, right, bottom] = [width, height, -1, -1];
  for (let y = 0; y < height; y += 1)
    for (let x = 0; x < width; x += 1)
      if (lit(x, y) > 0.2) {
        left = Math.min(left, x);
        right = Math.max(right, x);
        top = Math.min(top, y);
        bottom = Math.max(bottom, y);
      }
  if (right < 0) return { left: 0, top: 0, width, height };
  return { left, top, width: right - left + 1, height: bottom - top + 1 };
}

// Each pixel of the picture is the mean of 8 x 8.
function means(data, stride, picture) {
  return Array.from({ length: picture.height }, (_, row) =>
    Array.from({ length: picture.width }, (__, column) => {
      let sum = 0;
      for (let y = 0; y < 8; y += 1)
        for (let x = 0; x < 8; x += 1) sum += data[4 * ((8 * row + y) * stride + 8 * column + x)];
      return sum / 64 / 255;
    }),
  );
}

"use strict";
// Draws the charts of the report from the JSON in #data. No library, no network.

const data = JSON.parse(document.getElementById("data").textContent);
const state = { log: false, smooth: 0, hidden: new Set() };
const COLORS = 8;
const DASHES = ["", "5 3", "2 3", "9 3 2 3"];
const MARGIN = { top: 10, right: 10, bottom: 22, left: 52 };
const HEIGHT = 230;
const single = data.runs.length === 1;

function svg(tag, attributes, parent, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

function html(tag, attributes, parent, text) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.append(made);
  return made;
}

// With one run colors tell names apart; with several, runs have the colors and names the dashes.
function look(chart, curve) {
  const place = chart.names.indexOf(curve.name);
  return {
    color: `var(--c${(single ? place : curve.run) % COLORS})`,
    dash: DASHES[(single ? Math.floor(place / COLORS) : place) % DASHES.length],
  };
}

function shown(value) {
  if (value === null || value === undefined) return "not finite";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) return value.toExponential(2).replace("e+", "e");
  return String(Number(value.toPrecision(4)));
}

function smoothed(values) {
  if (!state.smooth) return values;
  let mean = 0, weight = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = state.smooth * mean + (1 - state.smooth) * value;
    weight = state.smooth * weight + (1 - state.smooth);
    return mean / weight;
  });
}

function ticks(low, high, most) {
  const rough = (high - low) / most;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * unit).find((n) => n >= rough) || rough;
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

function logTicks(low, high, most) {
  const first = Math.floor(low), last = Math.ceil(high);
  if (last - first < 2) return ticks(10 ** low, 10 ** high, most).filter((v) => v > 0).map(Math.log10);
  const stride = Math.max(1, Math.ceil((last - first) / most));
  const found = [];
  for (let power = first; power <= last; power += stride) if (power >= low && power <= high) found.push(power);
  return found;
}

function limits(values, low, high) {
  for (const value of values) {
    if (value === null) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

function scales(curves, width) {
  let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const curve of curves) {
    [x0, x1] = limits(curve.x, x0, x1);
    [y0, y1] = limits(curve.points, y0, y1);
  }
  if (x0 > x1) [x0, x1] = [0, 1];
  if (y0 > y1) [y0, y1] = [0, 1];
  if (x0 === x1) [x0, x1] = [x0 - 1, x1 + 1];
  const slack = y0 === y1 ? Math.abs(y0) * 0.1 || 1 : (y1 - y0) * 0.05;
  [y0, y1] = [y0 - slack, y1 + slack];
  const inner = width - MARGIN.left - MARGIN.right;
  const tall = HEIGHT - MARGIN.top - MARGIN.bottom;
  return {
    x0, x1, y0, y1,
    x: (step) => MARGIN.left + ((step - x0) / (x1 - x0)) * inner,
    y: (value) => MARGIN.top + (1 - (value - y0) / (y1 - y0)) * tall,
    step: (place) => x0 + ((place - MARGIN.left) / inner) * (x1 - x0),
  };
}

// A path with gaps where a value is missing; a value with no neighbour is a dot.
function path(xs, ys, scale) {
  const parts = [];
  ys.forEach((value, i) => {
    if (value === null) return;
    const starts = i === 0 || ys[i - 1] === null;
    const alone = starts && (i + 1 === ys.length || ys[i + 1] === null);
    const place = `${(scale.x(xs[i]) - (alone ? 2 : 0)).toFixed(1)} ${scale.y(value).toFixed(1)}`;
    parts.push(`${starts ? "M" : "L"}${place}${alone ? "h4" : ""}`);
  });
  return parts.join("");
}

function axes(picture, scale, width) {
  const bottom = HEIGHT - MARGIN.bottom;
  for (const value of state.log ? logTicks(scale.y0, scale.y1, 5) : ticks(scale.y0, scale.y1, 5)) {
    const y = scale.y(value);
    svg("line", { class: "rule", x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y }, picture);
    const text = shown(state.log ? 10 ** value : Math.abs(value) < 1e-12 ? 0 : value);
    svg("text", { x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" }, picture, text);
  }
  for (const step of ticks(scale.x0, scale.x1, Math.max(2, Math.floor(width / 90)))) {
    if (!Number.isInteger(step)) continue;
    const x = scale.x(step);
    svg("line", { class: "rule", x1: x, x2: x, y1: bottom, y2: bottom + 4 }, picture);
    svg("text", { x, y: bottom + 16, "text-anchor": "middle" }, picture, step.toLocaleString("en"));
  }
}

function draw(chart, figure) {
  const old = figure.querySelector(".plot");
  const width = Math.max(200, figure.clientWidth - 22);
  const picture = svg("svg", { class: "plot", viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT, role: "img" });
  picture.setAttribute("aria-label", chart.title);
  const onScale = (value) => (value === null || (state.log && value <= 0) ? null : state.log ? Math.log10(value) : value);
  const curves = chart.curves
    .filter((curve) => !state.hidden.has(curve.run))
    .map((curve) => ({ ...curve, points: curve.y.map(onScale), ...look(chart, curve) }));
  const scale = scales(curves, width);
  axes(picture, scale, width);
  for (const curve of curves) {
    const style = { stroke: curve.color, "stroke-linecap": "round" };
    if (state.smooth) svg("path", { class: "curve raw", d: path(curve.x, curve.points, scale), ...style }, picture);
    const line = smoothed(curve.points);
    const drawn = { class: "curve main", d: path(curve.x, line, scale), ...style, "stroke-dasharray": curve.dash };
    svg("path", drawn, picture).dataset.name = `${data.runs[curve.run]} ${curve.name}`;
  }
  const lost = chart.curves.reduce((sum, curve) => sum + (state.hidden.has(curve.run) ? 0 : curve.lost), 0);
  figure.querySelector(".lost").textContent = lost ? `not finite: ${lost}` : "";
  old ? old.replaceWith(picture) : figure.insertBefore(picture, figure.querySelector(".lost"));
  follow(figure, picture, curves, scale, width);
}

function nearest(steps, wanted) {
  let low = 0, high = steps.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (steps[middle] < wanted) low = middle; else high = middle;
  }
  return Math.abs(steps[low] - wanted) <= Math.abs(steps[high] - wanted) ? low : high;
}

function follow(figure, picture, curves, scale, width) {
  const readout = figure.querySelector(".readout");
  const cursor = svg("line", { class: "cursor", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, visibility: "hidden" }, picture);
  const leave = () => {
    readout.hidden = true;
    cursor.setAttribute("visibility", "hidden");
  };
  picture.addEventListener("pointerleave", leave);
  picture.addEventListener("pointermove", (event) => {
    if (!curves.length) return;
    const box = picture.getBoundingClientRect();
    const wanted = scale.step(((event.clientX - box.left) / box.width) * width);
    const places = curves.map((curve) => nearest(curve.x, wanted));
    const steps = curves.map((curve, i) => curve.x[places[i]]);
    const step = steps.reduce((a, b) => (Math.abs(b - wanted) < Math.abs(a - wanted) ? b : a));
    for (const side of ["x1", "x2"]) cursor.setAttribute(side, scale.x(step));
    cursor.setAttribute("visibility", "visible");
    readout.replaceChildren();
    html("div", {}, readout, `step ${step.toLocaleString("en")}`);
    curves.slice(0, 16).forEach((curve, i) => {
      const row = html("div", {}, readout);
      html("span", { class: "swatch" }, row).style.background = curve.color;
      const label = single ? curve.name : `${data.runs[curve.run]} ${curve.name}`;
      const other = steps[i] === step ? "" : ` (step ${steps[i].toLocaleString("en")})`;
      html("span", {}, row, `${label} ${shown(curve.y[places[i]])}${other}`);
    });
    readout.hidden = false;
    const x = Math.min((scale.x(step) / width) * box.width + 24, figure.clientWidth - readout.offsetWidth - 6);
    readout.style.left = `${Math.max(4, x)}px`;
    readout.style.top = "40px";
  });
}

function frame(chart) {
  const figure = html("figure", {}, document.getElementById("charts"));
  html("figcaption", {}, figure, chart.title);
  const keys = html("div", { class: "keys" }, figure);
  if (chart.names.length > 1 || chart.names[0] !== chart.title) {
    for (const name of chart.names.slice(0, 24)) {
      const key = html("span", {}, keys);
      const { color, dash } = look(chart, { name, run: 0 });
      const line = svg("svg", { viewBox: "0 0 22 8" }, key);
      const stroke = single ? color : "var(--faint)";
      svg("path", { class: "curve", d: "M0 4H22", stroke, "stroke-dasharray": dash }, line);
      key.append(name);
    }
  }
  html("div", { class: "lost" }, figure);
  html("div", { class: "readout" }, figure).hidden = true;
  return figure;
}

function controls(redraw) {
  const place = document.getElementById("controls");
  if (!single) {
    data.runs.forEach((name, run) => {
      const button = html("button", { class: "run", type: "button", "aria-pressed": "true" }, place);
      html("span", { class: "swatch" }, button).style.background = `var(--c${run % COLORS})`;
      button.append(name);
      button.addEventListener("click", () => {
        if (!state.hidden.delete(run)) state.hidden.add(run);
        button.setAttribute("aria-pressed", String(!state.hidden.has(run)));
        redraw();
      });
    });
  }
  const log = html("label", {}, place);
  const box = html("input", { type: "checkbox", id: "log" }, log);
  log.append("logarithmic");
  box.addEventListener("change", () => { state.log = box.checked; redraw(); });
  const smooth = html("label", {}, place);
  smooth.append("smoothing");
  const slider = html("input", { type: "range", id: "smooth", min: 0, max: 0.99, step: 0.01, value: 0 }, smooth);
  slider.addEventListener("input", () => { state.smooth = Number(slider.value); redraw(); });
}

const drawn = data.charts.map((chart) => [chart, frame(chart)]);
const redraw = () => drawn.forEach(([chart, figure]) => draw(chart, figure));
if (drawn.length) controls(redraw);
else html("p", {}, document.getElementById("charts"), "These logs hold no values yet.");
redraw();
let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth !== width) requestAnimationFrame(redraw);
  width = window.innerWidth;
});

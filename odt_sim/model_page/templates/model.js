"use strict";
const WIDTH = 172, HEIGHT = 40, LEAST = 0.02, MOST = 4, READABLE = 0.75;
const data = JSON.parse(document.getElementById("data").textContent);
const element = (id) => document.getElementById(id);
const svg = element("drawing"), scene = element("scene");
let nodes = [], edges = [], view = { x: 0, y: 0, scale: 1 }, chosen = -1;

function make(name, attributes, parent, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const named = (text) => data.names[text] ?? text;

function show(signature) {
  ({ nodes, edges } = structuredClone(data.graphs[signature]));
  chosen = -1;
  scene.replaceChildren();
  element("details").hidden = true;
  for (const edge of edges) drawEdge(edge);
  nodes.forEach(drawNode);
  fillLayers();
  mark();
  begin();
}

function drawEdge(edge) {
  const from = nodes[edge[0]], to = nodes[edge[1]];
  const y1 = from.y + HEIGHT / 2, y2 = to.y - HEIGHT / 2, bend = Math.max(10, (y2 - y1) / 2);
  const path = `M${from.x} ${y1}C${from.x} ${y1 + bend} ${to.x} ${y2 - bend} ${to.x} ${y2}`;
  edge.drawn = make("path", { class: "edge", d: path }, scene);
}

function drawNode(node, index) {
  const group = make("g", { class: "node", transform: `translate(${node.x} ${node.y})`, tabindex: -1 }, scene);
  make("rect", { class: node.runner, x: -WIDTH / 2, y: -HEIGHT / 2, width: WIDTH, height: HEIGHT }, group);
  make("text", { y: -3 }, group, short(named(node.label), 25));
  make("text", { y: 12, class: "shape" }, group, short(node.text, 30));
  make("title", {}, group, `${named(node.label)} ${node.text}${node.layer ? `, layer ${node.layer}` : ""}`);
  group.addEventListener("click", () => choose(index));
  node.drawn = group;
}

function fillLayers() {
  const counts = new Map();
  for (const { layer } of nodes) if (layer) counts.set(layer, (counts.get(layer) ?? 0) + 1);
  const options = [...counts].sort(([one], [other]) => one.localeCompare(other)).map(([layer, count]) => {
    const option = new Option(`${layer} (${count})`, layer);
    return option;
  });
  element("layer").replaceChildren(new Option("all", ""), ...options);
}

function matches(node) {
  const layer = element("layer").value, words = element("search").value.trim().toLowerCase();
  if (layer && node.layer !== layer) return false;
  if (!words) return true;
  const texts = [node.kind, named(node.label), node.text, node.layer, named(node.variable ?? ""), ...(node.inputs ?? []), ...(node.outputs ?? [])];
  return texts.some((text) => text.toLowerCase().includes(words));
}

function mark() {
  const found = nodes.map(matches), count = found.filter(Boolean).length;
  nodes.forEach((node, index) => {
    node.drawn.classList.toggle("dim", !found[index]);
    node.drawn.classList.toggle("chosen", index === chosen);
  });
  for (const edge of edges) {
    edge.drawn.classList.toggle("dim", !(found[edge[0]] && found[edge[1]]));
    edge.drawn.classList.toggle("near", edge[0] === chosen || edge[1] === chosen);
  }
  element("count").textContent = count === nodes.length ? `${count} nodes` : `${count} of ${nodes.length} nodes`;
  return nodes.filter((_, index) => found[index]);
}

function choose(index) {
  chosen = index;
  mark();
  const node = nodes[index], details = element("details");
  details.replaceChildren();
  const close = document.createElement("button");
  close.textContent = "×";
  close.className = "close";
  close.setAttribute("aria-label", "close");
  close.addEventListener("click", () => { details.hidden = true; chosen = -1; mark(); });
  details.append(close);
  line(details, "h3", node.number === undefined ? `${node.kind} ${node.label}` : `${node.kind} (op ${node.number})`);
  if (data.runners[node.runner]) line(details, "div", `run by: ${data.runners[node.runner]}`);
  if (node.layer) line(details, "div", `layer: ${node.layer}`);
  if (node.variable) line(details, "div", `nearest variable: ${named(node.variable)}`);
  if (node.number === undefined) line(details, "div", node.text);
  for (const side of ["inputs", "outputs"]) if (node[side]?.length) list(details, side, node[side]);
  details.hidden = false;
}

function line(parent, tag, text) {
  const made = document.createElement(tag);
  made.textContent = text;
  parent.append(made);
  return made;
}

function list(parent, title, texts) {
  line(parent, "div", title);
  const items = line(parent, "ul", "");
  for (const text of texts) line(items, "li", text);
}

function apply() {
  scene.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.scale})`);
}

function frame(some, least) {
  const box = svg.getBoundingClientRect(), xs = some.map((n) => n.x), ys = some.map((n) => n.y);
  const left = Math.min(...xs) - WIDTH / 2, top = Math.min(...ys) - HEIGHT / 2;
  const width = Math.max(...xs) + WIDTH / 2 - left, height = Math.max(...ys) + HEIGHT / 2 - top;
  const whole = Math.min((box.width - 40) / width, (box.height - 40) / height, 1);
  view.scale = Math.max(whole, least);
  const x = left + width / 2, y = whole < least ? top + (box.height - 40) / 2 / view.scale : top + height / 2;
  view.x = box.width / 2 - x * view.scale;
  view.y = box.height / 2 - y * view.scale;
  apply();
}

// A large graph begins readable at its inputs, rather than whole.
function begin() {
  if (!nodes.length) return;
  frame(nodes, LEAST);
  if (view.scale >= READABLE) return;
  const box = svg.getBoundingClientRect(), top = Math.min(...nodes.map((n) => n.y));
  const first = nodes.filter((n) => n.y < top + box.height / READABLE);
  const middle = first.map((n) => n.x).sort((a, b) => a - b)[first.length >> 1];
  view = { scale: READABLE, x: box.width / 2 - middle * READABLE, y: 30 - top * READABLE + HEIGHT / 2 };
  apply();
}

function zoom(factor, x, y) {
  const scale = Math.min(MOST, Math.max(LEAST, view.scale * factor)), ratio = scale / view.scale;
  view = { scale, x: x - (x - view.x) * ratio, y: y - (y - view.y) * ratio };
  apply();
}

function zoomMiddle(factor) {
  const box = svg.getBoundingClientRect();
  zoom(factor, box.width / 2, box.height / 2);
}

const pointers = new Map();
svg.addEventListener("pointerdown", (event) => pointers.set(event.pointerId, event));
svg.addEventListener("pointermove", (event) => {
  const before = pointers.get(event.pointerId);
  if (!before) return;
  const others = [...pointers.values()].filter((other) => other.pointerId !== event.pointerId);
  if (others.length === 1) {
    const other = others[0], box = svg.getBoundingClientRect();
    const distance = (one) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
    zoom(distance(event) / Math.max(1, distance(before)), (event.clientX + other.clientX) / 2 - box.left, (event.clientY + other.clientY) / 2 - box.top);
  } else if (!others.length) {
    view.x += event.clientX - before.clientX;
    view.y += event.clientY - before.clientY;
    apply();
  }
  pointers.set(event.pointerId, event);
});
for (const name of ["pointerup", "pointercancel", "pointerleave"]) svg.addEventListener(name, (event) => pointers.delete(event.pointerId));
svg.addEventListener("wheel", (event) => {
  event.preventDefault();
  const box = svg.getBoundingClientRect();
  zoom(Math.exp(-event.deltaY * 0.0015), event.clientX - box.left, event.clientY - box.top);
}, { passive: false });
svg.addEventListener("keydown", (event) => {
  const moves = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] };
  if (event.key in moves) {
    view.x += moves[event.key][0];
    view.y += moves[event.key][1];
    apply();
  } else if (event.key === "+") zoomMiddle(1.25);
  else if (event.key === "-") zoomMiddle(0.8);
  else return;
  event.preventDefault();
});
element("in").addEventListener("click", () => zoomMiddle(1.4));
element("out").addEventListener("click", () => zoomMiddle(1 / 1.4));
element("fit").addEventListener("click", () => nodes.length && frame(nodes, LEAST));
element("signature").addEventListener("change", (event) => show(event.target.value));
element("layer").addEventListener("change", () => { const found = mark(); if (found.length) frame(found, 0.25); });
element("search").addEventListener("input", mark);
element("search").addEventListener("change", () => { const found = mark(); if (found.length && found.length < nodes.length) frame(found, 0.25); });
element("signature").value = "train" in data.graphs ? "train" : Object.keys(data.graphs)[0];
show(element("signature").value);

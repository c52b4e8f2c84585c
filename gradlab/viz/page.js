// The page of a graph: places what is unfolded as diagram_layout.py does, draws it, and lets the reader search, zoom, fold and ask.
"use strict";
const D = JSON.parse(document.getElementById("graph").textContent);
const { PAD, STRIP, GAP, ROW, PULLS, DATA, SWEEPS, CHIP, CHIP_GAP, STEM } = D.sizes;
const folded = new Set(D.folded);
const NS = "http://www.w3.org/2000/svg";

// ---------------------------------------------------------------- coordinates (the same as diagram_layout.py)

function placeBox(number) {
  const frame = D.frames[number];
  const parts = frame.entries.map(([kind, target]) => {
    if (kind === "vertex") { const v = D.vertices[target]; return part(v.left, v.right, v.height); }
    if (kind === "box") {
      if (!folded.has(target)) return placeBox(target);
      const b = D.boxes[target]; return part(b.half, b.half, b.height);
    }
    return part(3, 3, 0);
  });
  across(frame, parts);
  const bands = down(frame, parts, number === 0 ? 0 : STRIP);
  let left = parts.length ? Math.min(...parts.map((p) => p.x - p.left)) - PAD : -PAD;
  let right = parts.length ? Math.max(...parts.map((p) => p.x + p.right)) + PAD : PAD;
  const ins = {}, outs = {};
  frame.entries.forEach(([kind, v], i) => { if (kind === "in") ins[v] = parts[i].x; if (kind === "out") outs[v] = parts[i].x; });
  const xs = Object.values(ins);
  if (number !== 0) {
    const title = D.boxes[number].title;
    left = Math.min(left, (xs.length ? Math.min(...xs) : left + title) - title);
    right = Math.max(right, left + title);
  }
  const anchor = xs.length ? xs.reduce((a, b) => a + b, 0) / xs.length : (left + right) / 2;
  for (const p of parts) p.x -= left;
  const bottom = bands.length ? bands[bands.length - 1][1] : STRIP;
  const made = part(anchor - left, right - anchor, bottom + (number === 0 ? 0 : PAD));
  for (const v in ins) made.ins[v] = ins[v] - anchor;
  for (const v in outs) made.outs[v] = outs[v] - anchor;
  made.inside = { box: number, frame, parts, bands };
  return made;
}

function part(left, right, height) { return { left, right, height, ins: {}, outs: {}, x: 0, y: 0, inside: null }; }

function down(frame, parts, top) {
  const level = levels(frame), aside = frame.layers.map(() => 0), fed = new Set(frame.links.map((l) => l[1]));
  for (const [a, b, v] of frame.links) {
    const reach = Math.abs(parts[a].x + (parts[a].outs[v] || 0) - parts[b].x - (parts[b].ins[v] || 0));
    aside[level[b]] = Math.max(aside[level[b]], reach);
  }
  const bands = [];
  let y = top;
  frame.layers.forEach((row, i) => {
    if (i > 0) {
      const ports = frame.layers[i - 1].every((e) => ["in", "bend"].includes(frame.entries[e][0])) ||
        row.every((e) => ["out", "bend"].includes(frame.entries[e][0]));
      y += Math.max(ports ? ROW / 2 : ROW, Math.min(64, 0.14 * aside[i] + 10));
    }
    const height = Math.max(0, ...row.map((e) => parts[e].height));
    for (const e of row) parts[e].y = y + (height - parts[e].height) / (fed.has(e) ? 2 : 1);
    bands.push([y, y + height]);
    y += height;
  });
  return bands;
}

function levels(frame) { const found = {}; frame.layers.forEach((row, i) => row.forEach((e) => { found[e] = i; })); return found; }

function across(frame, parts) {
  const above = parts.map(() => []), below = parts.map(() => []), data = new Set(frame.data);
  const bend = (e) => (frame.entries[e][0] === "bend" ? 1 : 0);
  for (const [a, b, v] of frame.links) {
    const bends = bend(a) + bend(b), pull = data.has(a) && !bends ? DATA : PULLS[bends];
    const rest = (parts[a].outs[v] || 0) - (parts[b].ins[v] || 0);
    above[b].push([a, rest, pull]);
    below[a].push([b, -rest, pull]);
  }
  for (const row of frame.layers) spread(row, parts, row.map(() => [0, 1]));
  const order = frame.layers.map((_, i) => i);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const last = sweep >= SWEEPS - 6;
    for (const level of sweep % 2 === 0 ? order : [...order].reverse()) {
      const row = frame.layers[level];
      spread(row, parts, row.map((e) => {
        const near = last ? [...above[e], ...below[e]] : sweep % 2 === 0 ? above[e] : below[e];
        if (!near.length) return [parts[e].x, 0.05];
        let weight = 0, sum = 0;
        for (const [n, rest, pull] of near) { weight += pull; sum += (parts[n].x + rest) * pull; }
        return [sum / weight, bend(e) ? 0.1 : weight];
      }));
    }
  }
  straighten(frame, parts, bend);
}

function straighten(frame, parts, bend) {
  const after = new Map(frame.links.filter(([a, b]) => bend(a) && bend(b)).map(([a, b]) => [a, b])), ends = new Set(after.values());
  const place = {};
  for (const row of frame.layers) row.forEach((e, i) => { place[e] = [row, i]; });
  for (const row of frame.layers) for (const start of row) {
    if (!bend(start) || ends.has(start)) continue;
    const line = [start];
    while (after.has(line[line.length - 1])) line.push(after.get(line[line.length - 1]));
    let low = -Infinity, high = Infinity;
    for (const e of line) {
      const [r, i] = place[e];
      if (i > 0) low = Math.max(low, parts[r[i - 1]].x + parts[r[i - 1]].right + GAP);
      if (i + 1 < r.length) high = Math.min(high, parts[r[i + 1]].x - parts[r[i + 1]].left - GAP);
    }
    if (low > high) continue;
    const x = Math.min(Math.max(line.reduce((s, e) => s + parts[e].x, 0) / line.length, low), high);
    for (const e of line) parts[e].x = x;
  }
}

function spread(row, parts, wishes) {
  const offsets = [], groups = [];
  let offset = 0;
  row.forEach((e, i) => { if (i > 0) offset += parts[row[i - 1]].right + GAP + parts[e].left; offsets.push(offset); });
  wishes.forEach(([wish, weight], i) => {
    groups.push([wish - offsets[i], weight, 1]);
    while (groups.length > 1 && groups[groups.length - 2][0] > groups[groups.length - 1][0]) {
      const [mean, w, count] = groups.pop(), first = groups[groups.length - 1], total = first[1] + w;
      first[0] = (first[0] * first[1] + mean * w) / total; first[1] = total; first[2] += count;
    }
  });
  let i = 0;
  for (const [mean, , count] of groups) for (let n = 0; n < count; n++, i++) parts[row[i]].x = mean + offsets[i];
}

// ---------------------------------------------------------------- drawing (the same as diagram_svg.py)

function make(tag, attributes, ...children) {
  const e = document.createElementNS(NS, tag);
  for (const k in attributes) e.setAttribute(k, attributes[k]);
  e.append(...children);
  return e;
}
function titled(x, y, title, name, anchor = "start", style = "t") {
  const t = make("text", { class: style, x, y, "text-anchor": anchor }, title + (name ? " " : ""));
  if (name) t.append(make("tspan", { class: "n" }, name));
  return t;
}
function outline(kind, x, y, w, h) {
  const polygon = (points) => make("polygon", { class: "shape " + kind, points: points.map((p) => p.join(",")).join(" ") });
  if (kind === "leaf") {
    const t = h / 3;
    return polygon([[x - t / 2, y + h / 2], [x + t / 2, y], [x + w - t / 2, y], [x + w + t / 2, y + h / 2], [x + w - t / 2, y + h], [x + t / 2, y + h]]);
  }
  if (kind === "input") return polygon([[x + 5, y], [x + w + 5, y], [x + w - 5, y + h], [x - 5, y + h]]);
  const rx = kind === "parameter" || kind === "output" ? Math.min(h, 40) / 2 : kind === "constant" || kind === "state" ? 3 : 6;
  return make("rect", { class: "shape " + kind, x, y, width: w, height: h, rx });
}
function course(x0, y0, far, near, x1, y1) {
  if (Math.abs(x1 - x0) < 0.5) return `M${x0} ${y0}L${x1} ${y1}`;
  near = Math.min(near, y1);
  const m = (far + near) / 2;
  return `M${x0} ${y0}${far - y0 > 0.1 ? "V" + far : ""}C${x0} ${m} ${x1} ${m} ${x1} ${near}${y1 - near > 0.1 ? "V" + y1 : ""}`;
}

let spots = {}; // "vertex 3" or "box 2" -> [x, y, width, height]
let chosen = null, hits = new Set();
const camera = make("g", {}), picture = make("svg", { "aria-label": D.title }, camera);
const stage = document.getElementById("stage");
stage.append(picture);

function draw() {
  const whole = placeBox(0), boxes = make("g", {}), lines = make("g", {}), parts = make("g", {});
  spots = {};
  inside(whole.inside, 0, 0, boxes, lines, parts);
  camera.replaceChildren(boxes, lines, parts);
  spots.whole = [0, 0, whole.left + whole.right, whole.height];
}
function inside(box, x, y, boxes, lines, parts) {
  box.frame.entries.forEach(([kind, number], i) => {
    const p = box.parts[i];
    if (kind === "vertex") vertex(number, p, x + p.x, y + p.y, parts);
    else if (kind === "box") {
      const b = D.boxes[number], left = x + p.x - p.left, top = y + p.y;
      spots["box " + number] = [left, top, p.left + p.right, p.height];
      if (!p.inside) { card(number, p, x + p.x, top, parts); return; }
      boxes.append(make("rect", { class: "box", x: left, y: top, width: p.left + p.right, height: p.height, rx: 9 }));
      const t = titled(left + 11, top + STRIP - 8.5, "\u2212 " + b.kind, b.name, "start", "t fold");
      t.append(make("title", {}, "fold this module"));
      t.addEventListener("click", () => toggle(number));
      parts.append(t);
      inside(p.inside, left, top, boxes, lines, parts);
    }
  });
  links(box, x, y, lines);
}
function part_of(key, ...children) {
  const g = make("g", { class: "part" + (hits.has(key) ? " hit" : "") + (chosen === key ? " chosen" : ""), tabindex: 0, "data-key": key }, ...children);
  g.addEventListener("click", () => choose(key));
  g.addEventListener("keydown", (e) => { if (e.key === "Enter") choose(key); });
  return g;
}
function vertex(number, p, x, y, into) {
  const v = D.vertices[number], w = 2 * p.right, h = v.shape ? 40 : 28, top = y + (p.height - h) / 2, mid = top + h / 2;
  const g = part_of("vertex " + number);
  spots["vertex " + number] = [x - p.right, top, w, h];
  if (v.chips.length) {
    const wide = p.left - p.right - STEM, left = x - p.left;
    let at = y + (p.height - (v.chips.length * (CHIP + CHIP_GAP) - CHIP_GAP)) / 2;
    for (const c of v.chips) {
      const centre = at + CHIP / 2, end = Math.min(Math.max(centre, top + 6), top + h - 6);
      g.append(make("path", { class: c.kind === "parameter" || c.kind === "state" ? "stem" : "edge", fill: "none", d: `M${left + wide} ${centre}L${x - p.right} ${end}` }));
      const o = outline(c.kind, left, at, wide, CHIP); o.setAttribute("class", o.getAttribute("class") + " chip");
      const t = titled(left + 8, centre + 3.6, c.name, c.shape, "start", "c");
      g.append(o, t);
      at += CHIP + CHIP_GAP;
    }
  }
  const light = v.kind === "output" ? " output-text" : "";
  g.append(outline(v.kind, x - p.right, top, w, h), titled(x, v.shape ? mid - 4 : mid + 4, v.title, v.name, "middle", "t" + light));
  if (v.shape) g.append(make("text", { x, y: mid + 12, "text-anchor": "middle", class: light.trim() }, v.shape));
  if (v.kept) g.append(make("rect", { class: "kept", x: x - p.right + 6, y: top + h - 3.4, width: Math.max(1.5, (w - 12) * v.kept / D.most), height: 2.2, rx: 1 }));
  into.append(g);
}
function card(number, p, x, y, into) {
  const b = D.boxes[number], w = 2 * p.right - 4, h = p.height - 4, left = x - p.right;
  const t = titled(x - 2, y + 18, "+ " + b.kind, b.name, "middle", "t fold");
  t.append(make("title", {}, "unfold this module"));
  t.addEventListener("click", (e) => { e.stopPropagation(); toggle(number); });
  const g = part_of("box " + number,
    make("rect", { class: "back module", x: left + 4, y: y + 4, width: w, height: h, rx: 6 }),
    make("rect", { class: "shape module", x: left, y, width: w, height: h, rx: 6 }), t,
    ...b.lines.map((line, i) => make("text", { x: x - 2, y: y + 33 + 14 * i, "text-anchor": "middle" }, line)));
  g.addEventListener("dblclick", () => toggle(number));
  into.append(g);
}
function links(box, x, y, into) {
  const { frame, parts, bands } = box, level = levels(frame), entering = new Map(), aside = {};
  const ends = (b) => frame.entries[b][0] === "vertex" || (frame.entries[b][0] === "box" && !Object.keys(parts[b].ins).length);
  for (const [a, b, v] of frame.links) if (ends(b)) {
    const start = parts[a].x + (parts[a].outs[v] || 0);
    if (!entering.has(b)) entering.set(b, new Map());
    entering.get(b).set([start, a].join(), [start, a]);
  }
  for (const [b, starts] of entering) {
    const found = [...starts.values()];
    const step = Math.min(16, 2 * parts[b].right * 0.6 / Math.max(found.length - 1, 1));
    found.sort((p, q) => p[0] - q[0] || p[1] - q[1]);
    const at = found.findIndex(([start]) => Math.abs(start - parts[b].x) < 2), straight = at < 0 ? (found.length - 1) / 2 : at;
    found.forEach(([start, a], i) => { aside[[start, a, b]] = (i - straight) * step; });
  }
  for (const [a, b, v] of frame.links) {
    const s = parts[a], e = parts[b], from = frame.entries[a][0], to = frame.entries[b][0], last = ends(b);
    const x0 = x + s.x + (s.outs[v] || 0), x1 = x + e.x + (e.ins[v] || 0) + (aside[[s.x + (s.outs[v] || 0), a, b]] || 0);
    let y0 = from === "in" ? y : from === "bend" ? y + bands[level[a]][1] : y + s.y + s.height;
    if (from === "vertex" && s.height > 40.5) y0 -= (s.height - 40) / 2;
    const far = y + bands[level[a]][1], near = y + bands[level[b]][0];
    const top = e.y + (to === "vertex" && e.height > 40.5 ? (e.height - 40) / 2 : 0);
    let y1 = to === "bend" ? y + bands[level[b]][1] : to === "out" ? near + 14 : y + top;
    if (last) y1 -= 5;
    into.append(make("path", { class: "edge", d: course(x0, y0, far, near, x1, y1) }));
    if (last) into.append(make("path", { class: "tip", d: `M${x1 - 3.6} ${y1 - 1.5}h7.2L${x1} ${y1 + 5}z` }));
  }
}

// ---------------------------------------------------------------- view: pan and zoom

const view = { x: 0, y: 0, k: 1, moved: false };
function show() { camera.setAttribute("transform", `translate(${view.x},${view.y}) scale(${view.k})`); }
function fit() {
  const [, , w, h] = spots.whole, { width, height } = stage.getBoundingClientRect();
  view.k = Math.min(1.4, (width - 40) / w, Math.max((height - 40) / h, 0.45));
  view.x = (width - w * view.k) / 2; view.y = 20;
  show();
}
function zoom(factor, x, y) {
  const k = Math.min(6, Math.max(0.05, view.k * factor));
  view.moved = true;
  view.x = x - (x - view.x) * k / view.k; view.y = y - (y - view.y) * k / view.k; view.k = k;
  show();
}
function focus(key) {
  const spot = spots[key];
  if (!spot) return;
  view.moved = true;
  const { width, height } = stage.getBoundingClientRect();
  view.k = Math.max(view.k, 0.9);
  view.x = width / 2 - (spot[0] + spot[2] / 2) * view.k; view.y = height / 2 - (spot[1] + spot[3] / 2) * view.k;
  show();
}
stage.addEventListener("wheel", (e) => {
  e.preventDefault();
  const r = stage.getBoundingClientRect();
  if (e.ctrlKey || e.metaKey || !e.shiftKey) zoom(Math.exp(-e.deltaY * 0.0015), e.clientX - r.left, e.clientY - r.top);
  else { view.x -= e.deltaX || e.deltaY; show(); }
}, { passive: false });
let held = null;
stage.addEventListener("pointerdown", (e) => { held = { x: e.clientX, y: e.clientY }; });
window.addEventListener("pointermove", (e) => {
  if (!held) return;
  stage.classList.add("held");
  view.moved = true;
  view.x += e.clientX - held.x; view.y += e.clientY - held.y; held = { x: e.clientX, y: e.clientY };
  show();
});
window.addEventListener("pointerup", () => { held = null; stage.classList.remove("held"); });

// ---------------------------------------------------------------- folding, search, details

function toggle(number) { if (!folded.delete(number)) folded.add(number); draw(); show(); choose("box " + number, false); }
function path(key) {
  const [kind, number] = key.split(" "), found = [];
  let b = kind === "vertex" ? D.vertices[number].box : D.boxes[number].parent;
  for (; b !== 0; b = D.boxes[b].parent) found.unshift(b);
  return found;
}
function reveal(key) { for (const b of path(key)) folded.delete(b); draw(); focus(key); choose(key, false); }
function search(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (t) => words.every((w) => t.toLowerCase().includes(w));
  const found = !words.length ? [] : [
    ...D.boxes.filter((b) => b.id && matches(`${b.kind} ${b.name} module`)).map((b) => "box " + b.id),
    ...D.vertices.filter((v) => matches([v.title, v.name, v.shape, v.kind, v.place, ...v.facts.flat(), ...v.chips.flatMap((c) => [c.name, c.shape])].join(" ")))
      .map((v) => "vertex " + v.id)];
  hits = new Set(found);
  draw();
  list("found", found.slice(0, 60), words.length ? `${found.length} found` : "");
  return found;
}
function label(key) {
  const [kind, number] = key.split(" "), it = kind === "vertex" ? D.vertices[number] : D.boxes[number];
  return [`${it.title && kind === "vertex" ? it.title : it.kind} ${it.name}`.trim(), path(key).map((b) => D.boxes[b].name || D.boxes[b].kind).join(".")];
}
function list(id, keys, heading, note) {
  const holder = document.getElementById(id);
  holder.replaceChildren();
  if (!heading) return;
  const h = document.createElement("h2"), ol = document.createElement("ol");
  h.textContent = heading;
  for (const key of keys) {
    const li = document.createElement("li"), a = document.createElement("span"), b = document.createElement("span");
    const where = document.createElement("small");
    where.className = "soft"; where.textContent = " " + label(key)[1];
    a.textContent = label(key)[0]; b.textContent = note ? note(key) : "";
    a.append(where);
    li.tabIndex = 0; li.append(a, b);
    li.addEventListener("click", () => reveal(key));
    li.addEventListener("keydown", (e) => { if (e.key === "Enter") reveal(key); });
    ol.append(li);
  }
  holder.append(h, ol);
}
function choose(key) {
  chosen = key;
  for (const g of camera.querySelectorAll("g.part")) g.classList.toggle("chosen", g.dataset.key === key);
  const [kind, number] = key.split(" "), holder = document.getElementById("details"), rows = [];
  const it = kind === "vertex" ? D.vertices[number] : D.boxes[number];
  rows.push(["in", path(key).map((b) => `${D.boxes[b].kind} ${D.boxes[b].name}`.trim()).join(" › ") || "the whole"]);
  if (kind === "vertex") {
    if (it.shape) rows.push(["shape", it.shape]);
    for (const c of it.chips) rows.push([c.kind, `${c.name} ${c.shape}`]);
    rows.push(...it.facts.filter(([k]) => k !== "parameter"));
    if (it.kept) rows.push(["kept for backward", it.keptText]);
  } else rows.push(...it.lines.map((line) => ["", line]));
  if (it.place) rows.push(["recorded at", it.place]);
  const h = document.createElement("h2"), dl = document.createElement("dl");
  h.textContent = label(key)[0];
  for (const [k, v] of rows) {
    const dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.textContent = k;
    if (k === "line" || k === "recorded at") { const c = document.createElement("code"); c.textContent = v; dd.append(c); } else dd.textContent = v;
    dl.append(dt, dd);
  }
  holder.replaceChildren(h, dl);
  if (kind === "box") {
    const button = document.createElement("button");
    button.textContent = folded.has(+number) ? "Unfold" : "Fold";
    button.addEventListener("click", () => toggle(+number));
    holder.append(document.createElement("p"), button);
  }
}
const field = document.getElementById("search");
field.addEventListener("input", () => search(field.value));
field.addEventListener("keydown", (e) => { if (e.key === "Enter") { const f = search(field.value); if (f.length) reveal(f[0]); } });
document.getElementById("fit").addEventListener("click", fit);
document.getElementById("less").addEventListener("click", () => { for (const b of D.boxes) if (b.id && b.depth > 1) folded.add(b.id); draw(); fit(); });
document.getElementById("all").addEventListener("click", () => { folded.clear(); draw(); fit(); });
document.getElementById("first").addEventListener("click", () => { folded.clear(); D.folded.forEach((b) => folded.add(b)); draw(); fit(); });
document.addEventListener("keydown", (e) => { if (e.key === "/" && document.activeElement !== field) { e.preventDefault(); field.focus(); } });
const keepers = D.vertices.filter((v) => v.kept).sort((a, b) => b.kept - a.kept).slice(0, 12);
list("keepers", keepers.map((v) => "vertex " + v.id), keepers.length ? "What backward keeps most of" : "", (key) => D.vertices[key.split(" ")[1]].keptText);
draw();
fit();
window.addEventListener("resize", () => { if (!view.moved) fit(); });
window.gradlab = { D, folded, draw, fit, search, reveal, choose, toggle, spots: () => spots };
document.body.dataset.ready = "yes";

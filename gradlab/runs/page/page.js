// What every face of a page shares: the model in WebAssembly, bars of probabilities, and the time of an answer.
const faces = {};
const bytesOf = (text) => Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) name in element ? (element[name] = value) : element.setAttribute(name, value);
  element.append(...children);
  return element;
};
function softmax(scores) {
  const top = Math.max(...scores), powers = Array.from(scores, (score) => Math.exp(score - top)), total = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / total);
}
/** [name, probability] pairs, the likeliest first. */
const ranked = (names, chances, most) => names.map((name, i) => [name, chances[i]]).sort((a, b) => b[1] - a[1]).slice(0, most);
function bars(pairs) {
  return make("dl", { className: "bars" }, ...pairs.flatMap(([name, chance], i) => {
    const first = i === 0 ? " first" : "", bar = make("div", { className: `bar${first}` });
    bar.style.width = `${Math.max(chance * 100, 0.5)}%`;
    return [make("dt", { className: first, title: name }, name), make("dd", {}, bar), make("dd", { className: `number${first}` }, `${(chance * 100).toFixed(1)} %`)];
  }));
}
/** run(arrays) and the milliseconds that it took: the mean of several, as browsers' clocks are coarse. */
function timed(model, arrays) {
  const start = performance.now();
  let results, took, runs = 0;
  do {
    results = model.run(...arrays);
    took = performance.now() - start;
    ++runs;
  } while (took < 3 && runs < 1000);
  return { results, took: took / runs };
}
/** What a run's classes or number are, from the model's scores. */
function answer(about, scores) {
  if (!about.classes) return { title: `${about.goal}: ${Number((scores[0] * about.deviation + about.mean).toPrecision(6))}`, pairs: [] };
  const pairs = ranked(about.classes, softmax(scores), 10);
  return { title: pairs[0][0], pairs };
}
function show(place, { title, pairs }, took) {
  place.replaceChildren(make("p", { className: "answer" }, title), ...(pairs.length ? [bars(pairs)] : []), time(took));
}
const time = (took, what = "an answer") => make("p", { className: "time" }, `${took.toFixed(took < 1 ? 3 : 1)} ms for ${what}, on this machine`);
const fault = (place, error) => place.replaceChildren(make("p", { className: "fault" }, error.message));

async function start() {
  const about = JSON.parse(document.getElementById("about").textContent);
  const question = document.getElementById("question"), place = document.getElementById("answer");
  try {
    const model = await open(bytesOf(document.getElementById("wasm").textContent), bytesOf(document.getElementById("weights").textContent));
    faces[about.face].begin(about, model, question, place);
  } catch (error) {
    fault(place, error);
  }
}
if (typeof document !== "undefined") start();

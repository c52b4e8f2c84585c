// The face of texts: a prompt, and what the model writes after it, token by token.
const BYTES = 256, WORDS = / ?[\p{L}\p{N}_]{1,24}| ?[^\s\p{L}\p{N}_]{1,24}|\s{1,24}(?!\S)|\s{1,24}/gu;
faces.text = {
  tokenizer({ kind, characters, merges }) {
    if (kind === "characters") {
      const letters = ["\ufffd", ...characters], places = new Map(letters.map((letter, i) => [letter, i]));
      places.delete("\ufffd");
      [...characters].forEach((letter, i) => places.set(letter, i + 1));
      return { unknown: 0, encode: (text) => [...text].map((letter) => places.get(letter) ?? 0), decode: (tokens) => tokens.map((token) => letters[token]).join("") };
    }
    const bytes = Array.from({ length: BYTES }, (_, i) => [i]), ranks = new Map();
    for (const [first, second] of merges) {
      ranks.set(`${first} ${second}`, bytes.length);
      bytes.push([...bytes[first], ...bytes[second]]);
    }
    const word = (text) => {
      let tokens = [...new TextEncoder().encode(text)];
      for (;;) {
        const joined = Math.min(...tokens.slice(1).map((token, i) => ranks.get(`${tokens[i]} ${token}`) ?? Infinity));
        if (joined === Infinity) return tokens;
        const next = [];
        for (let i = 0; i < tokens.length; ++i)
          if (ranks.get(`${tokens[i]} ${tokens[i + 1]}`) === joined) { next.push(joined); ++i; } else next.push(tokens[i]);
        tokens = next;
      }
    };
    return {
      unknown: null, encode: (text) => [...text.matchAll(WORDS)].flatMap(([part]) => word(part)),
      decode: (tokens) => new TextDecoder().decode(Uint8Array.from(tokens.flatMap((token) => bytes[token]))),
    };
  },
  /** The tokens that the model goes on from: at least one, and none that it does not know. */
  begun(prompt, tokenizer) {
    const known = (text) => tokenizer.encode(text).filter((token) => token !== tokenizer.unknown);
    const tokens = known(prompt), line = known("\n");
    return tokens.length ? tokens : line.length ? line : [1];
  },
  /** Where the window begins: a full one begins anew with its last half. */
  first(begin, count, context) {
    return count - begin > context ? count - Math.max(1, Math.floor(context / 2)) : begin;
  },
  /** Scores of the token after the last. */
  next(model, tokens, about) {
    const window = new BigInt64Array(about.context);
    tokens.forEach((token, i) => { window[i] = BigInt(token); });
    const [scores] = model.run(window);
    return Array.from(scores.subarray((tokens.length - 1) * about.tokens, tokens.length * about.tokens));
  },
  chances(scores, temperature, most, never) {
    const found = scores.map((score, i) => (i === never ? -Infinity : score));
    if (temperature === 0) { const top = found.indexOf(Math.max(...found)); return found.map((_, i) => (i === top ? 1 : 0)); }
    const least = most && most < found.length ? [...found].sort((a, b) => b - a)[most - 1] : -Infinity;
    return softmax(found.map((score) => (score < least ? -Infinity : score / temperature)));
  },
  drawn(chances, number) {
    let sum = 0;
    for (let i = 0; i < chances.length; ++i) if (number < (sum += chances[i])) return i;
    return chances.lastIndexOf(Math.max(...chances));
  },
  /** Random numbers of 0 to 1 by a seed (xorshift of Marsaglia, 2003). */
  random(seed) {
    let state = (seed ^ 0x9e3779b9) | 1;
    return () => {
      state ^= state << 13; state ^= state >>> 17; state ^= state << 5;
      return (state >>> 0) / 2 ** 32;
    };
  },
  begin(about, model, question, place) {
    const tokenizer = this.tokenizer(about.tokenizer), prompt = make("textarea", { rows: 4, value: "", id: "prompt", placeholder: "what the text begins with" });
    const number = (value, attributes) => make("input", { type: "number", value, min: 0, style: "width:6em", ...attributes });
    const settings = { length: number(300, { min: 1 }), temperature: number(0.8, { step: 0.1 }), top: number("", { placeholder: "all" }), seed: number(0, {}) };
    const out = make("div", { className: "written", id: "written" }), chart = make("div"), button = make("button", { id: "write" }, "Write");
    let running = false;
    button.onclick = async () => {
      running = !running;
      if (!running) return;
      button.textContent = "Stop";
      try {
        const tokens = this.begun(prompt.value, tokenizer), written = [], random = this.random(Number(settings.seed.value));
        const times = [];
        for (let i = 0, begin = Math.max(0, tokens.length - about.context); running && i < Number(settings.length.value); ++i) {
          begin = this.first(begin, tokens.length, about.context);
          const before = performance.now(), scores = this.next(model, tokens.slice(begin), about);
          times.push(performance.now() - before);
          const chances = this.chances(scores, Number(settings.temperature.value), Number(settings.top.value), tokenizer.unknown);
          const token = this.drawn(chances, random());
          tokens.push(token);
          written.push(token);
          out.textContent = prompt.value + tokenizer.decode(written);
          const names = chances.map((_, j) => tokenizer.decode([j]).replaceAll("\n", "↵").replaceAll(" ", "␣"));
          chart.replaceChildren(bars(ranked(names, chances, 8)), time(times.toSorted((a, b) => a - b)[times.length >> 1], "a token"));
          await new Promise((done) => setTimeout(done));
        }
      } catch (error) {
        fault(chart, error);
      }
      running = false;
      button.textContent = "Write";
    };
    const labelled = Object.entries({ tokens: settings.length, temperature: settings.temperature, "of the likeliest": settings.top, seed: settings.seed });
    question.append(prompt, ...labelled.map(([name, field]) => make("div", { className: "row" }, make("label", {}, `${name} `, field))), make("div", { className: "row" }, button));
    place.append(out, chart);
  },
};

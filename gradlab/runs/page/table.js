// The face of tables: a field for each column, with its own range or words, in the table's own units.
faces.table = {
  /** The cells of a row, by column ("" where missing), as the arrays of a model. */
  encode(cells, about) {
    const numbers = [], categories = [];
    const turn = (value, of) => { const angle = 2 * Math.PI * ((((value % of) + of) % of) / of); return [Math.sin(angle), Math.cos(angle)]; };
    for (const { name, kind, words, parts } of about.columns) {
      const cell = cells[name] ?? "";
      if (kind === "category") {
        categories.push(BigInt(words.indexOf(cell) + 1));
        continue;
      }
      const value = cell === "" ? NaN : kind === "date" ? Date.parse(cell.includes("T") ? `${cell}Z` : cell) / 864e5 : Number(cell);
      const found = { "": value };
      if (kind === "date")
        for (const [part, of, shift] of [["year", 365.2425, 0], ["week", 7, 3], ["day", 1, 0]])
          [found[` ${part} sin`], found[` ${part} cos`]] = turn(value + shift, of);
      for (const [part, { mean, deviation, empty }] of Object.entries(parts)) {
        const lost = Number.isNaN(found[part]);
        numbers.push(lost ? 0 : Math.min(10, Math.max(-10, (found[part] - mean) / deviation)));
        if (empty) numbers.push(lost ? 1 : 0);
      }
    }
    return [...(numbers.length ? [Float32Array.from(numbers)] : []), ...(categories.length ? [BigInt64Array.from(categories)] : [])];
  },
  begin(about, model, question, place) {
    const fields = {}, list = make("div", { className: "fields" });
    const say = () => {
      const cells = Object.fromEntries(Object.entries(fields).map(([name, field]) => [name, field.value]));
      const { results, took } = timed(model, this.encode(cells, about));
      show(place, answer(about, results[0]), took);
    };
    about.columns.forEach(({ name, kind, words, parts }, i) => {
      const id = `field${i}`;
      if (kind === "category") {
        const choices = [make("option", { value: "" }, "(missing)"), ...words.map((word) => make("option", { value: word }, word))];
        fields[name] = make("select", { id, onchange: say }, ...choices);
        fields[name].value = words[0] ?? "";
        list.append(make("label", { htmlFor: id }, name), make("div", {}, fields[name]));
        return;
      }
      const { mean, low, high } = parts[""], tidy = (value) => Number(value.toPrecision(4));
      if (kind === "date") {
        const days = new Date(mean * 864e5).toISOString(), timed_ = Object.keys(parts).includes(" day sin");
        fields[name] = make("input", { id, type: timed_ ? "datetime-local" : "date", value: timed_ ? days.slice(0, 16) : days.slice(0, 10), oninput: say });
        list.append(make("label", { htmlFor: id }, name), make("div", {}, fields[name]));
        return;
      }
      const slider = make("input", { type: "range", min: low, max: high, step: (high - low) / 200 || 1, value: tidy(mean), tabIndex: -1 });
      const field = (fields[name] = make("input", { id, type: "number", step: "any", placeholder: "missing", value: tidy(mean), title: `${low} to ${high} in training` }));
      slider.setAttribute("aria-label", `${name}, from ${low} to ${high}`);
      slider.oninput = () => { field.value = tidy(Number(slider.value)); say(); };
      field.oninput = () => { if (field.value !== "") slider.value = field.value; say(); };
      list.append(make("label", { htmlFor: id }, name), make("div", {}, slider, field));
    });
    question.append(list);
    say();
  },
};

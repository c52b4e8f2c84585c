// The face of series: the last steps as lines of numbers, and the steps that follow them.
faces.series = {
  /** Lines of numbers as the window of a model. */
  encode(text, about) {
    const rows = text.trim().split(/\n+/).map((line) => line.trim().split(/[\s,;]+/).map(Number));
    if (rows.length < about.window) throw new Error(`${rows.length} steps, where the model looks at the last ${about.window}`);
    const last = rows.slice(-about.window);
    const wrong = last.findIndex((row) => row.length !== about.columns.length || row.some((value) => !Number.isFinite(value)));
    if (wrong >= 0) throw new Error(`line ${rows.length - about.window + wrong + 1} is not of ${about.columns.length} numbers: ${about.columns.join(", ")}`);
    const scaled = (value, i) => (value - about.means[i]) / about.deviations[i];
    return [Float32Array.from(last.flatMap((row) => row.map((value, i) => (i < about.names.length ? scaled(value, i) : Math.min(10, Math.max(-10, scaled(value, i)))))))];
  },
  /** The forecast in the series' own unit: a row for each step. */
  decode(forecast, about) {
    const many = about.names.length;
    return Array.from({ length: forecast.length / many }, (_, i) => about.names.map((_, j) => forecast[i * many + j] * about.deviations[j] + about.means[j]));
  },
  begin(about, model, question, place) {
    const example = Array.from({ length: about.window }, () => about.means.map((mean) => Number(mean.toPrecision(4))).join(", ")).join("\n");
    const field = make("textarea", { rows: Math.min(about.window, 16), id: "window", value: example });
    const say = () => {
      try {
        const { results, took } = timed(model, this.encode(field.value, about));
        const rows = this.decode(results[0], about).map((row, i) => make("tr", {}, ...[i + 1, ...row.map((value) => value.toPrecision(5))].map((cell) => make("td", {}, `${cell}`))));
        const head = make("tr", {}, ...["step", ...about.names].map((name) => make("th", {}, name)));
        place.replaceChildren(make("table", {}, head, ...rows), time(took));
      } catch (error) {
        fault(place, error);
      }
    };
    field.oninput = say;
    question.append(make("p", { className: "soft" }, `the last ${about.window} steps, the oldest first, a line for each: ${about.columns.join(", ")}`), field);
    say();
  },
};

// The face of any other model: its arrays as numbers.
faces.arrays = {
  encode(texts, inputs, names) {
    return texts.map((text, i) => {
      const { dtype, shape } = inputs[i], name = names[i], words = text.trim() ? text.trim().split(/[\s,;]+/) : [], size = shape.reduce((a, b) => a * b, 1);
      const wrong = words.find((word) => !Number.isFinite(Number(word)));
      if (wrong !== undefined) throw new Error(`${name}: ${wrong} is no number`);
      if (words.length !== size) throw new Error(`${name}: ${words.length} numbers, where there are ${size} (${shape.join(" x ")})`);
      return KINDS[dtype].from(words, /64$/.test(dtype) && dtype !== "float64" ? BigInt : Number);
    });
  },
  begin(about, model, question, place) {
    const shown = (array) => make("textarea", { rows: 4, value: Array(array.shape.reduce((a, b) => a * b, 1)).fill(0).join(" ") });
    const fields = model.inputs.map(shown);
    const say = () => {
      try {
        const { results, took } = timed(model, this.encode(fields.map((field) => field.value), model.inputs, about.inputs));
        const parts = results.flatMap((result, i) => [make("p", { className: "soft" }, `${about.outputs[i]} (${model.outputs[i].shape.join(" x ")})`), make("p", {}, Array.from(result).slice(0, 1000).join(" "))]);
        place.replaceChildren(...parts, time(took));
      } catch (error) {
        fault(place, error);
      }
    };
    model.inputs.forEach((array, i) => {
      fields[i].oninput = say;
      question.append(make("p", { className: "soft" }, `${about.inputs[i]}: ${array.dtype} (${array.shape.join(" x ")})`), fields[i]);
    });
    say();
  },
};

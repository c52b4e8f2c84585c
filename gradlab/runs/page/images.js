// The face of images: a canvas to draw on where they are digits, and pictures that are dropped, chosen or pasted.
faces.images = {
  /** Strokes, arrays of [x, y], as the digits were scanned: fitted into 32x32 dots, of which 4x4 make a pixel of 0 to 16. */
  digit(strokes) {
    const points = strokes.flat(), pen = 1.9, dots = 32;
    const [left, top] = [0, 1].map((d) => Math.min(...points.map((p) => p[d]))), [right, bottom] = [0, 1].map((d) => Math.max(...points.map((p) => p[d])));
    const scale = (dots - 2 * pen) / Math.max(right - left, bottom - top, 1e-9);
    const at = ([x, y]) => [dots / 2 + (x - (left + right) / 2) * scale, dots / 2 + (y - (top + bottom) / 2) * scale];
    const near = (x, y, [ax, ay], [bx, by]) => {
      const dx = bx - ax, dy = by - ay, length = dx * dx + dy * dy;
      const t = length ? Math.min(1, Math.max(0, ((x - ax) * dx + (y - ay) * dy) / length)) : 0;
      return (ax + t * dx - x) ** 2 + (ay + t * dy - y) ** 2 <= pen * pen;
    };
    const pixels = new Uint8Array(64), lines = strokes.map((stroke) => stroke.map(at));
    for (let y = 0; y < dots; ++y)
      for (let x = 0; x < dots; ++x)
        if (lines.some((line) => line.some((p, i) => near(x + 0.5, y + 0.5, line[Math.max(i - 1, 0)], p)))) ++pixels[(y >> 2) * 8 + (x >> 2)];
    return pixels.map((count) => Math.round((count * 255) / 16));
  },
  /** Red, green, blue and alpha as the channels of a model, of what is transparent on white. */
  channels({ data, width, height }, channels) {
    const found = new Uint8Array(width * height * channels);
    for (let i = 0; i < width * height; ++i) {
      const alpha = data[4 * i + 3], [r, g, b] = [0, 1, 2].map((c) => Math.round((data[4 * i + c] * alpha + 255 * (255 - alpha)) / 255));
      if (channels === 1) found[i] = (r * 19595 + g * 38470 + b * 7471 + 32768) >> 16;
      else found.set([r, g, b], 3 * i);
    }
    return { data: found, width, height, channels };
  },
  /** A part of a picture at another size by a triangle filter of whole numbers, as Pillow's. box: left, top, right, bottom. */
  resized({ data, width, height, channels }, wide, high, box) {
    const weights = (from, to, size, count) => Array.from({ length: count }, (_, i) => {
      const scale = (to - from) / count, support = Math.max(scale, 1), centre = from + (i + 0.5) * scale;
      const first = Math.max(Math.trunc(centre - support + 0.5), 0), last = Math.min(Math.trunc(centre + support + 0.5), size);
      const raw = Array.from({ length: last - first }, (_, j) => Math.max(0, 1 - Math.abs((first + j - centre + 0.5) / support)));
      const total = raw.reduce((a, b) => a + b, 0);
      return { first, factors: raw.map((value) => Math.round((value / total) * (1 << 22))) };
    });
    const byte = (sum) => Math.min(255, Math.max(0, Math.floor(sum / (1 << 22))));
    const half = 1 << 21, across = weights(box[0], box[2], width, wide), down = weights(box[1], box[3], height, high);
    const rows = new Uint8Array(height * wide * channels), found = new Uint8Array(high * wide * channels);
    for (let y = 0; y < height; ++y)
      for (let x = 0; x < wide; ++x)
        for (let c = 0; c < channels; ++c)
          rows[(y * wide + x) * channels + c] = byte(across[x].factors.reduce((sum, f, j) => sum + f * data[(y * width + across[x].first + j) * channels + c], half));
    for (let y = 0; y < high; ++y)
      for (let i = 0; i < wide * channels; ++i)
        found[y * wide * channels + i] = byte(down[y].factors.reduce((sum, f, j) => sum + f * rows[(down[y].first + j) * wide * channels + i], half));
    return { data: found, width: wide, height: high, channels };
  },
  /** A picture at the model's size. */
  fitted(picture, about) {
    const [high, wide] = about.size;
    if (picture.width === wide && picture.height === high) return picture;
    let box = [0, 0, picture.width, picture.height];
    if (about.fit === "crop") {
      const scale = Math.min(picture.height / high, picture.width / wide), across = wide * scale, down = high * scale;
      box = [(picture.width - across) / 2, (picture.height - down) / 2, (picture.width + across) / 2, (picture.height + down) / 2];
    }
    return this.resized(picture, wide, high, box);
  },
  /** Bytes (height, width, channels) as a model takes them. */
  encode(data, about) {
    const places = about.size[0] * about.size[1];
    return [Float32Array.from({ length: data.length }, (_, i) => Math.fround(data[(i % places) * about.channels + Math.floor(i / places)] / 255))];
  },
  begin(about, model, question, place) {
    const seen = make("canvas", { className: "seen", width: about.size[1], height: about.size[0] });
    const say = (data) => {
      const picture = seen.getContext("2d").createImageData(about.size[1], about.size[0]);
      for (let i = 0; i < about.size[0] * about.size[1]; ++i)
        picture.data.set([0, 1, 2].map((c) => data[i * about.channels + (about.channels === 3 ? c : 0)]).concat(255), 4 * i);
      seen.getContext("2d").putImageData(picture, 0, 0);
      const { results, took } = timed(model, this.encode(data, about));
      show(place, answer(about, results[0]), took);
    };
    const read = async (file) => {
      try {
        const bitmap = await createImageBitmap(file, { imageOrientation: "from-image", colorSpaceConversion: "none", premultiplyAlpha: "none" });
        const canvas = make("canvas", { width: bitmap.width, height: bitmap.height }), context = canvas.getContext("2d");
        context.drawImage(bitmap, 0, 0);
        say(this.fitted(this.channels(context.getImageData(0, 0, bitmap.width, bitmap.height), about.channels), about).data);
      } catch {
        fault(place, new Error(`${file.name || "what was pasted"} is no picture that this browser can read`));
      }
    };
    const file = make("input", { type: "file", accept: "image/*", hidden: true, onchange: () => file.files[0] && read(file.files[0]) });
    const drop = make("div", { className: "drop", tabIndex: 0, onclick: () => file.click() }, "Drop a picture here, click to choose one, or paste it");
    drop.setAttribute("role", "button");
    drop.onkeydown = (event) => { if (event.key === "Enter" || event.key === " ") file.click(); };
    drop.ondragover = (event) => { event.preventDefault(); drop.classList.add("over"); };
    drop.ondragleave = () => drop.classList.remove("over");
    drop.ondrop = (event) => { event.preventDefault(); drop.classList.remove("over"); if (event.dataTransfer.files[0]) read(event.dataTransfer.files[0]); };
    document.onpaste = (event) => { if (event.clipboardData.files[0]) read(event.clipboardData.files[0]); };
    const looks = make("div", { className: "row" }, seen, make("span", { className: "soft" }, `what the model sees: ${about.size[1]} × ${about.size[0]}`));
    if (about.digits) this.draw(say, question);
    question.append(...(about.digits ? [] : [drop]), file, looks);
  },
  /** A canvas whose strokes are read after every movement. */
  draw(say, question) {
    const canvas = make("canvas", { className: "ink", id: "ink", width: 320, height: 320 }), context = canvas.getContext("2d");
    canvas.setAttribute("aria-label", "draw a digit here");
    let strokes = [], waiting = false;
    const paint = () => {
      waiting = false;
      context.clearRect(0, 0, 320, 320);
      Object.assign(context, { lineWidth: 24, lineCap: "round", lineJoin: "round", strokeStyle: "#fff" });
      for (const stroke of strokes) {
        context.beginPath();
        context.moveTo(...stroke[0]);
        for (const [x, y] of stroke) context.lineTo(x + (stroke.length > 1 ? 0 : 0.1), y); // a dot is a stroke, too
        context.stroke();
      }
      if (strokes.length) say(this.digit(strokes));
    };
    const point = (event) => {
      const box = canvas.getBoundingClientRect();
      return [((event.clientX - box.left) * 320) / box.width, ((event.clientY - box.top) * 320) / box.height];
    };
    const later = () => { if (!waiting) { waiting = true; requestAnimationFrame(paint); } };
    canvas.onpointerdown = (event) => { canvas.setPointerCapture(event.pointerId); strokes.push([point(event)]); later(); };
    canvas.onpointermove = (event) => { if (event.buttons && strokes.length) { strokes.at(-1).push(point(event)); later(); } };
    const clear = make("button", { onclick: () => { strokes = []; context.clearRect(0, 0, 320, 320); } }, "Clear");
    question.append(canvas, make("div", { className: "row" }, clear, make("span", { className: "soft" }, "Draw a digit, with a finger or a mouse")));
  },
};

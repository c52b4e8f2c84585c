// What makes a program for Node of the module: arrays from .npy files and into them.
// ---- a program in Node
const DESCRIBED = @DESCRS;
async function main(given) {
  const { readFileSync, writeFileSync } = await import("node:fs");
  const time = given.at(-2) === "--time" ? Number(given.at(-1)) : 0;
  const [weights, ...files] = time ? given.slice(0, -2) : given;
  if (files.length !== inputs.length + outputs.length) {
    console.error(`usage: node @NAME.mjs WEIGHTS ${inputs.length} INPUT.npy ${outputs.length} OUTPUT.npy [--time RUNS]`);
    return 2;
  }
  const model = await open(readFileSync(new URL("./@NAME.wasm", import.meta.url)), readFileSync(weights));
  const arrays = inputs.map((array, i) => {
    const data = readFileSync(files[i]), start = data[6] > 1 ? 12 : 10, size = data[6] > 1 ? data.readUInt32LE(8) : data.readUInt16LE(8);
    const head = data.toString("latin1", start, start + size), shape = (/'shape': \(([^)]*)\)/.exec(head)?.[1] ?? "").split(",").filter((n) => n.trim());
    const dtype = /'descr': '([^']*)'/.exec(head)?.[1];
    if (data.toString("latin1", 1, 6) !== "NUMPY") throw new Error(`${files[i]} is no .npy file`);
    if (dtype?.slice(1) !== DESCRIBED[array.dtype].slice(1) || dtype[0] === ">") throw new Error(`${files[i]} has another dtype`);
    if (shape.map(Number).join() !== array.shape.join()) throw new Error(`${files[i]} has another shape`);
    if (shape.length > 1 && head.includes("'fortran_order': True")) throw new Error(`${files[i]} is in column-major order`);
    const body = data.subarray(start + size);
    if (body.length < count(array) * KINDS[array.dtype].BYTES_PER_ELEMENT) throw new Error(`${files[i]} is cut off`);
    return new KINDS[array.dtype](body.buffer.slice(body.byteOffset, body.byteOffset + body.length), 0, count(array));
  });
  const results = model.run(...arrays);
  let least = Infinity;
  for (let i = 0; i < time; ++i) {
    const start = performance.now();
    model.run(...arrays);
    least = Math.min(least, performance.now() - start);
  }
  if (time) console.log(`${least.toFixed(6)} ms`);
  outputs.forEach((array, i) => {
    const shape = array.shape.map((n) => `${n},`).join("");
    let head = `{'descr': '${DESCRIBED[array.dtype]}', 'fortran_order': False, 'shape': (${shape}), }`;
    head += " ".repeat((64 - ((10 + head.length + 1) % 64)) % 64) + "\n";
    const start = Buffer.from([0x93, 78, 85, 77, 80, 89, 1, 0, head.length & 255, head.length >> 8]);
    const data = results[i];
    writeFileSync(files[inputs.length + i], Buffer.concat([start, Buffer.from(head, "latin1"), Buffer.from(data.buffer, data.byteOffset, data.byteLength)]));
  });
  return 0;
}
if (typeof process !== "undefined" && process.argv?.[1] && import.meta.url.endsWith(process.argv[1].split(/[\\/]/).at(-1))) {
  main(process.argv.slice(2)).then((code) => { process.exitCode = code; }, (error) => { console.error(error.message); process.exitCode = 1; });
}

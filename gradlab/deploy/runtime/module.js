// @NAME: made by gradlab; runs @NAME.wasm, in a browser or in Node, with the weights in @NAME.weights.
//   import { open } from "./@NAME.mjs";
//   const model = await open(wasmBytes, weightBytes);      // ArrayBuffers or typed arrays
//   const [y] = model.run(x);                              // typed arrays in row-major order
//   node @NAME.mjs @NAME.weights input.npy output.npy [--time RUNS]
export const inputs = @INPUTS;
export const outputs = @OUTPUTS;
const KINDS = {
  float32: Float32Array, float64: Float64Array, float16: Uint16Array, bfloat16: Uint16Array, int8: Int8Array, int16: Int16Array, int32: Int32Array,
  int64: BigInt64Array, uint8: Uint8Array, uint32: Uint32Array, uint64: BigUint64Array, bool: Uint8Array,
};
const count = (array) => array.shape.reduce((a, b) => a * b, 1);

/** A context of its own: weights and work space. Throws an Error with the runner's message. */
export async function open(wasm, weights) {
  const bytes = weights instanceof Uint8Array ? weights : new Uint8Array(weights.buffer ?? weights);
  const { instance } = await WebAssembly.instantiate(wasm, {});
  const own = instance.exports;
  own._initialize?.();
  const message = (code) => {
    const memory = new Uint8Array(own.memory.buffer), start = own.@NAME_message(code);
    return new TextDecoder().decode(memory.slice(start, memory.indexOf(0, start)));
  };
  const space = (size) => {
    const place = own.malloc(size + 64);
    if (place === 0) throw new Error(message(@MEMORY));
    return Math.ceil(place / 64) * 64;
  };
  const checked = (code) => {
    if (code !== 0) throw new Error(message(code));
  };
  const file = space(bytes.length), cell = space(4);
  new Uint8Array(own.memory.buffer).set(bytes, file);
  checked(own.@NAME_open_memory(cell, file, bytes.length));
  const context = new Uint32Array(own.memory.buffer)[cell / 4];
  const places = [...inputs, ...outputs].map((array) => space(count(array) * KINDS[array.dtype].BYTES_PER_ELEMENT));
  return {
    inputs, outputs,
    run(...given) {
      if (given.length !== inputs.length) throw new Error(`the model takes ${inputs.length} arrays, not ${given.length}`);
      given.forEach((data, i) => {
        const array = inputs[i];
        if (!(data instanceof KINDS[array.dtype])) throw new Error(`${array.name} is a ${KINDS[array.dtype].name} (${array.dtype})`);
        if (data.length !== count(array)) throw new Error(`${array.name} has ${count(array)} elements (${array.shape}), not ${data.length}`);
        new KINDS[array.dtype](own.memory.buffer, places[i], data.length).set(data);
      });
      checked(own.@NAME_run(context, ...places));
      return outputs.map((array, i) => new KINDS[array.dtype](own.memory.buffer, places[inputs.length + i], count(array)).slice());
    },
    close: () => own.@NAME_close(context),
  };
}

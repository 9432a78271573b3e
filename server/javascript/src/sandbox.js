// What a function finds around itself: QuickJS without clock, chance and code made of texts, and without anything that a call
// could change for the next one. Runs once in a new machine, before any code of a user's.
(() => {
  const global = globalThis;
  const { defineProperty, getOwnPropertyDescriptor, getPrototypeOf, freeze } = Object;
  const { ownKeys, apply } = Reflect;
  const NativeDate = Date;
  const NativeString = String;

  const named = (made, like) => {
    for (const key of ["name", "length"]) {
      defineProperty(made, key, { value: like[key], configurable: true });
    }
    return made;
  };
  const refused = (name, why) =>
    named({ f() { throw new TypeError(`${name} is not there: ${why}`); } }.f, { name, length: 0 });

  // Chance, clocks, what runs later, what shares memory, and what sees the garbage collector.
  delete Math.random;
  for (const name of ["Promise", "queueMicrotask", "Proxy", "WeakRef", "FinalizationRegistry", "SharedArrayBuffer", "Atomics",
    "performance", "console", "eval"]) {
    delete global[name];
  }
  // Settings of the engine, which a frozen object would still let a call change.
  for (const name of ["captureStackTrace", "prepareStackTrace", "stackTraceLimit"]) {
    delete Error[name];
  }

  // Code made of texts could declare names that stay.
  const kinds = [function () {}, function* () {}, async function () {}, async function* () {}];
  for (const kind of kinds) {
    const proto = getPrototypeOf(kind);
    const made = refused(proto.constructor.name, "code is not made of texts");
    made.prototype = proto;
    defineProperty(proto, "constructor", { value: made, writable: false, configurable: true });
    if (proto === Function.prototype) {
      defineProperty(global, "Function", { value: made, configurable: true });
    }
  }

  // Date without the present, and in UTC wherever the machine stands.
  const zoned = /(?:Z|[+-]\d\d:?\d\d|GMT|UTC)\s*$/i;
  const dayOnly = /^[+-]?\d{4,6}(?:-\d\d(?:-\d\d)?)?$/;
  const parse = (text) => {
    if (dayOnly.test(text) || zoned.test(text)) return NativeDate.parse(text);
    const iso = NativeDate.parse(text + "Z");
    return iso === iso ? iso : NativeDate.parse(text + " UTC");
  };
  const proto = NativeDate.prototype;
  const SafeDate = function Date(...parts) {
    if (new.target === undefined || parts.length === 0) {
      throw new TypeError("there is no clock: new Date() needs a time; give the function now() as an argument");
    }
    let time = parts[0];
    if (parts.length > 1) {
      time = NativeDate.UTC(...parts);
    } else if (time instanceof NativeDate) {
      time = proto.getTime.call(time);
    } else {
      if (typeof time === "object" && time !== null) time = time[Symbol.toPrimitive]?.("default") ?? time.valueOf();
      if (typeof time === "string") time = parse(time);
    }
    return Reflect.construct(NativeDate, [time], new.target);
  };
  SafeDate.prototype = proto;
  defineProperty(SafeDate, "length", { value: 7 });
  defineProperty(SafeDate, "UTC", { value: NativeDate.UTC });
  defineProperty(SafeDate, "parse", { value: named({ f(text) { return parse(NativeString(text)); } }.f, { name: "parse", length: 1 }) });
  const method = (name, value) => defineProperty(proto, name, { value, writable: true, configurable: true });
  method("constructor", SafeDate);
  for (const part of ["FullYear", "Month", "Date", "Day", "Hours", "Minutes", "Seconds", "Milliseconds"]) {
    method("get" + part, proto["getUTC" + part]);
    if (part !== "Day") method("set" + part, proto["setUTC" + part]);
  }
  delete proto.getYear;
  delete proto.setYear;
  method("getTimezoneOffset", { getTimezoneOffset() { return 0; } }.getTimezoneOffset);
  const utc = proto.toUTCString;
  method("toString", utc);
  method("toLocaleString", utc);
  for (const name of ["toDateString", "toLocaleDateString"]) {
    method(name, named({ f() { return utc.call(this).slice(0, 16); } }.f, { name, length: 0 }));
  }
  for (const name of ["toTimeString", "toLocaleTimeString"]) {
    method(name, named({ f() { return utc.call(this).slice(17); } }.f, { name, length: 0 }));
  }
  defineProperty(global, "Date", { value: SafeDate, configurable: true });

  // Looking for a long text in a long text takes the product of their lengths, in one step that nothing can end.
  const PRODUCT_MAX = 2 ** 32;
  const text = NativeString.prototype;
  for (const name of ["indexOf", "lastIndexOf", "includes", "split", "replace", "replaceAll"]) {
    const native = text[name];
    const looked = {
      f(...given) {
        let needle = given[0];
        if (typeof needle === "object" && needle !== null && !(needle instanceof RegExp)) {
          needle = given[0] = NativeString(needle);
        }
        const within = typeof this === "string" || this === null || this === undefined ? this : NativeString(this);
        if (typeof needle === "string" && typeof within === "string" && needle.length * within.length > PRODUCT_MAX) {
          throw new RangeError(`${name}: the texts are too long`);
        }
        return apply(native, within, given);
      },
    }.f;
    defineProperty(text, name, { value: named(looked, native), writable: true, configurable: true });
  }

  // What goes over the places of an array does so in one step, also where an array of a few elements says that it has billions.
  const LENGTH_MAX = 2 ** 24;
  const { isArray } = Array;
  const counted = (object, name) => {
    if (typeof object !== "object" || object === null) return;
    const length = getOwnPropertyDescriptor(object, "length");
    if (length === undefined) return;
    if (!("value" in length) || (typeof length.value !== "number" && typeof length.value !== "undefined")) {
      throw new TypeError(`${name}: the length of what is taken for an array must be a number`);
    }
    if (length.value > LENGTH_MAX) throw new RangeError(`${name}: the array is too long`);
  };
  for (const name of ["sort", "toSorted", "reverse", "toReversed", "join", "toLocaleString", "fill", "copyWithin", "splice", "toSpliced",
    "unshift", "shift", "slice", "concat", "with", "indexOf", "lastIndexOf", "includes", "flat"]) {
    const native = Array.prototype[name];
    const looked = {
      f(...given) {
        counted(this, name);
        if (name === "concat") for (const each of given) counted(each, name);
        if (name === "flat" && isArray(this)) for (const each of this) counted(each, name);
        return apply(native, this, given);
      },
    }.f;
    defineProperty(Array.prototype, name, { value: named(looked, native), writable: true, configurable: true });
  }

  // Many references to one object are long to write, and only the call of a function can be ended.
  const stringify = JSON.stringify;
  const same = (_, value) => value;
  const written = { stringify(value, replacer, space) { return stringify(value, replacer ?? same, space); } }.stringify;
  defineProperty(JSON, "stringify", { value: written, writable: true, configurable: true });

  // A frozen property could not be given to an object that inherits it, which programs do with these.
  const overridable = (holder) => {
    for (const key of ownKeys(holder)) {
      const { value, enumerable, configurable, writable } = getOwnPropertyDescriptor(holder, key);
      if (!configurable || !writable) continue;
      defineProperty(holder, key, {
        get: { get() { return value; } }.get,
        set: {
          set(given) {
            if (this === holder || this === undefined || this === null) throw new TypeError("what every function has cannot be changed");
            defineProperty(this, key, { value: given, writable: true, enumerable: true, configurable: true });
          },
        }.set,
        enumerable,
        configurable: true,
      });
    }
  };
  overridable(Object.prototype);
  overridable(Function.prototype);
  for (const kind of [Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError, AggregateError]) {
    overridable(kind.prototype);
  }

  // What the server asks of values. It runs with what is here now, whatever a program does.
  const isDate = proto.getTime;
  const kindOf = getOwnPropertyDescriptor(getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag).get;
  const { fromCharCode } = NativeString;
  const big = /"\\u0000n(-?\d+)"/g;
  const replaceAll = text.replaceAll;
  const CHUNK = 4096;
  const parseJson = JSON.parse;
  const tagged = (kind, of) => ({ $: kind, of });
  const packed = (value) => {
    switch (typeof value) {
      case "undefined":
        return tagged("undefined");
      case "bigint":
        return tagged("bigint", `${value}`);
      case "number":
        return Number.isFinite(value) && !Object.is(value, -0) ? value : tagged("number", Object.is(value, -0) ? "-0" : `${value}`);
      case "string":
      case "boolean":
        return value;
      case "object":
        break;
      default:
        throw new TypeError(`a state holds data: a ${typeof value} is none`);
    }
    if (value === null) return null;
    if (isArray(value)) {
      const made = [];
      for (const item of value) made.push(packed(item));
      return made;
    }
    const kind = getPrototypeOf(value);
    if (kind === Object.prototype || kind === null) {
      const entries = Object.entries(value);
      if (entries.some(([key]) => key === "$" || key === "__proto__")) return tagged("object", packed(entries));
      const made = {};
      for (const [key, item] of entries) made[key] = packed(item);
      return made;
    }
    if (kind === Map.prototype || kind === Set.prototype) return tagged(kind === Map.prototype ? "map" : "set", packed([...value]));
    const time = helpers.time(value);
    if (time !== undefined) return tagged("date", packed(time));
    const bytes = helpers.bytes(value);
    if (bytes !== undefined) return tagged("bytes", bytes);
    throw new TypeError("a state holds data: an object of a class is none");
  };
  const unpacked = (value) => {
    if (typeof value !== "object" || value === null) return value;
    if (isArray(value)) return value.map(unpacked);
    if (value.$ === undefined) {
      const made = {};
      for (const key of Object.keys(value)) made[key] = unpacked(value[key]);
      return made;
    }
    const { of } = value;
    switch (value.$) {
      case "undefined": return undefined;
      case "bigint": return BigInt(of);
      case "number": return of === "-0" ? -0 : Number(of);
      case "object": return Object.fromEntries(unpacked(of));
      case "map": return new Map(unpacked(of));
      case "set": return new Set(unpacked(of));
      case "date": return new NativeDate(unpacked(of));
      default: return Uint8Array.from(of, (byte) => byte.charCodeAt(0));
    }
  };
  const helpers = {
    // Milliseconds since 1970 of a Date.
    time(value) {
      try { return apply(isDate, value, []); } catch { return undefined; }
    },
    date: (time) => new NativeDate(time),
    bytes(value) {
      if (apply(kindOf, value, []) !== "Uint8Array") return undefined;
      let made = "";
      for (let at = 0; at < value.length; at += CHUNK) made += apply(fromCharCode, null, value.subarray(at, at + CHUNK));
      return made;
    },
    // Numbers beyond 2^53 are BigInts in JavaScript and numbers in JSON.
    json(value) {
      let found = false;
      const made = stringify(value, (_, each) => {
        if (typeof each !== "bigint") return each;
        found = true;
        return `\0n${each}`;
      });
      return found ? apply(replaceAll, made, [big, "$1"]) : made;
    },
    big: (digits) => BigInt(digits),
    // The rows that a function gives: those that it yields, and those that it returns.
    rows(main, ...given) {
      const made = [];
      const steps = main(...given);
      for (;;) {
        const { value, done } = steps.next();
        if (!done) {
          made.push(value);
        } else {
          if (value !== undefined && value !== null) for (const row of value) made.push(row);
          return made;
        }
      }
    },
    // A state as a text, and back. What JSON has not is written as an object with the key "$".
    save: (state) => stringify(packed(state)),
    load: (text) => unpacked(parseJson(text)),
    // A reducer is made anew for each call, so that its variables keep nothing; what lasts is its state.
    init(make) {
      const { init } = make();
      return init === undefined ? {} : init();
    },
    step(make, part, state, ...given) {
      const next = make()[part](state, ...given);
      return next === undefined ? state : next;
    },
    value(make, state) {
      const { value } = make();
      return value === undefined ? state : value(state);
    },
    has: (make, part) => make()[part] !== undefined,
  };
  Object.values(helpers).forEach((helper) => freeze(helper));

  // Everything that can be reached, the prototypes that have no name included.
  const seen = new Set();
  const samples = [global, ...kinds, [][Symbol.iterator](), ""[Symbol.iterator](), new Map().entries(), new Set().entries(),
    "".matchAll(/x/g), (function* () {})(), (async function* () {})(), (function () { return arguments; })(), /x/, new Uint8Array(0),
    [].values().map((x) => x), Iterator.from({ next() {} })];
  const waiting = [...samples];
  while (waiting.length > 0) {
    const object = waiting.pop();
    if ((typeof object !== "object" && typeof object !== "function") || object === null || seen.has(object)) continue;
    seen.add(object);
    waiting.push(getPrototypeOf(object));
    for (const key of ownKeys(object)) {
      const { value, get, set } = getOwnPropertyDescriptor(object, key);
      waiting.push(value, get, set);
    }
  }
  for (const object of seen) {
    // Elements of a typed array cannot be frozen; an empty one has none.
    freeze(object);
  }
  return freeze(helpers);
})()

/* Exact values of derived costs, as compiler/sizes.py evaluates them: a BigInt where a value is whole, a Ratio where it is not, and a
   Number only behind a logarithm or a root. Whatever has no value throws NoValue with the reason. */
"use strict";

class NoValue extends Error {}

/* A fraction in lowest terms whose bottom is 2 or more. */
class Ratio {
  constructor(top, bottom) { this.top = top; this.bottom = bottom; }
}

const MOST_BITS = 100000n;                       // beyond this exponent a power is as good as infinite
const MOST_TERMS = 1000000n;                     // of a sum that is added up term by term

function divisor(a, b) {
  a = a < 0n ? -a : a;
  b = b < 0n ? -b : b;
  while (b) [a, b] = [b, a % b];
  return a;
}

/* top / bottom of two BigInts: a BigInt where it is whole. */
function ratio(top, bottom) {
  if (bottom === 0n) throw new NoValue("division by zero");
  if (bottom < 0n) [top, bottom] = [-top, -bottom];
  const d = divisor(top, bottom);
  return bottom === d ? top / d : new Ratio(top / d, bottom / d);
}

const top = x => x instanceof Ratio ? x.top : x;
const bottom = x => x instanceof Ratio ? x.bottom : 1n;

/* How many binary digits a BigInt has. */
function bits(x) {
  const digits = (x < 0n ? -x : x).toString(16);
  return BigInt(digits.length * 4 - Math.clz32(parseInt(digits[0], 16)) + 28);
}

/* The Number nearest to a value, or next to that. */
function float(x) {
  if (typeof x === "number") return x;
  if (typeof x === "bigint") return Number(x);
  const shift = bits(x.bottom) - bits(x.top) + 64n;   // 60 bits of the quotient and more, so that neither side overflows
  const whole = shift >= 0n ? (x.top << shift) / x.bottom : x.top / (x.bottom << -shift);
  return Number(whole) * 2 ** -Number(shift);
}

const inexact = xs => xs.some(x => typeof x === "number");

function add(...xs) {
  if (inexact(xs)) return xs.reduce((sum, x) => sum + float(x), 0);
  return xs.reduce((sum, x) => typeof sum === "bigint" && typeof x === "bigint" ? sum + x
    : ratio(top(sum) * bottom(x) + top(x) * bottom(sum), bottom(sum) * bottom(x)), 0n);
}

function mul(...xs) {
  if (inexact(xs)) return xs.reduce((product, x) => product * float(x), 1);
  return xs.reduce((product, x) => typeof product === "bigint" && typeof x === "bigint" ? product * x
    : ratio(top(product) * top(x), bottom(product) * bottom(x)), 1n);
}

function pow(x, y) {
  if (typeof y === "bigint") {
    if ((y < -MOST_BITS || y > MOST_BITS) && (compare(x, -1n) < 0 || compare(x, 1n) > 0)) return y > 0n ? Infinity : 0n;
    if (typeof x === "bigint" && y > 0n && bits(x) * y > MOST_BITS) return x > 0n ? Infinity : NaN;
    if (typeof x === "number") return finite(x ** Number(y), "a power of zero");
    return y >= 0n ? ratio(top(x) ** y, bottom(x) ** y) : ratio(bottom(x) ** -y, top(x) ** -y);
  }
  if (typeof x === "bigint" && x >= 0n && y instanceof Ratio && y.top === 1n && y.bottom === 2n) {
    const root = squareRoot(x);
    if (root * root === x) return root;
  }
  return finite(float(x) ** float(y), "a root of something negative");
}

function finite(x, why) {
  if (Number.isNaN(x) || x === Infinity) throw new NoValue(why);
  return x;
}

/* ⌊√x⌋, by Newton's steps from above. */
function squareRoot(x) {
  if (x < 2n) return x;
  let at = 1n << (bits(x) / 2n + 1n);
  for (;;) {
    const next = (at + x / at) >> 1n;
    if (next >= at) return at;
    at = next;
  }
}

/* Negative, zero or positive, as x is less than, equal to or greater than y; NaN where one of them is NaN. */
function compare(x, y) {
  if (x instanceof Ratio || y instanceof Ratio) {
    if (inexact([x, y])) [x, y] = [float(x), float(y)];
    else [x, y] = [top(x) * bottom(y), top(y) * bottom(x)];
  }
  return x < y ? -1 : x > y ? 1 : x == y ? 0 : NaN;   // == holds a BigInt against a Number
}

const eq = (x, y) => compare(x, y) === 0;
const ne = (x, y) => compare(x, y) !== 0;
const lt = (x, y) => compare(x, y) < 0;
const le = (x, y) => compare(x, y) <= 0;
const most = (...xs) => xs.reduce((a, b) => compare(b, a) > 0 ? b : a);
const least = (...xs) => xs.reduce((a, b) => compare(b, a) < 0 ? b : a);

function floor(x) {
  if (typeof x === "bigint") return x;
  if (typeof x === "number") {
    if (!Number.isFinite(x)) throw new NoValue("not finite");
    return BigInt(Math.floor(x));
  }
  const q = x.top / x.bottom;
  return x.top < 0n ? q - 1n : q;
}

const ceil = x => -floor(mul(-1n, x));

/* The remainder has the sign of m, as in Python and in sympy. */
function mod(x, m) {
  if (eq(m, 0n)) throw new NoValue("division by zero");
  if (inexact([x, m])) return float(x) - float(m) * Math.floor(float(x) / float(m));
  return add(x, mul(-1n, m, floor(mul(x, pow(m, -1n)))));
}

function log(x) {
  if (compare(x, 0n) <= 0) throw new NoValue("the logarithm of nothing");
  if (typeof x !== "bigint" || bits(x) < 1000n) return Math.log(float(x));
  const shift = bits(x) - 900n;                       // more than a Number holds
  return Math.log(Number(x >> shift)) + Number(shift) * Math.LN2;
}

const exp = x => Math.exp(float(x));
const cos = x => Math.cos(float(x));

/* ⌈log x to a base⌉ without floating point. */
function ceilLog(x, base) {
  if (compare(base, 1n) <= 0 && compare(x, 1n) > 0) throw new NoValue(`no power of ${text(base)} is ${text(x)}`);
  let k = 0n;
  for (let power = 1n; compare(power, x) < 0; power = mul(power, base)) k += 1n;
  return k;
}

/* Σ of a term from first to last; of very many terms by the closed form, where there is one. */
function total(first, last, term, closed) {
  if (compare(add(last, mul(-1n, first)), MOST_TERMS) >= 0) {
    if (closed) return closed();
    throw new NoValue("a sum of too many terms");
  }
  let sum = 0n;
  for (let i = floor(first), end = floor(last); i <= end; i += 1n) sum = add(sum, term(i));
  return sum;
}

function fail(why) { throw new NoValue(why); }

const isSize = x => compare(x, 1n) >= 0 && (typeof x === "bigint" || typeof x === "number" && Number.isInteger(x));

/* ---- as a person reads a value ------------------------------------------------------------------------------------------------ */
const grouped = digits => digits.replace(/\B(?=(\d{3})+(?!\d))/g, ",");

/* All digits of a whole number, four of another. */
function text(x) {
  if (typeof x === "bigint") return (x < 0n ? "−" : "") + grouped((x < 0n ? -x : x).toString());
  const f = float(x);
  if (Number.isNaN(f)) return "no number";
  if (!Number.isFinite(f)) return f < 0 ? "−∞" : "∞";
  if (Number.isInteger(f) && !(x instanceof Ratio)) return text(BigInt(f));
  const [digits, e] = f.toExponential(3).split("e");
  const at = Number(e);
  if (at < -4 || at >= 4) return `${plain(digits)}e${at < 0 ? "-" : "+"}${String(Math.abs(at)).padStart(2, "0")}`.replace("-", "−");
  const [whole, rest] = plain(f.toFixed(3 - at)).split(".");
  return (grouped(whole) + (rest ? `.${rest}` : "")).replace("-", "−");
}

const plain = digits => digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits;

/* 1.02 G: three digits and a prefix, for the ticks of an axis and where room is short. */
function short(x) {
  const f = float(x);
  if (f === 0) return "0";
  const size = Math.abs(f);
  if (size >= 1e21 || size < 1e-9) return f.toExponential(0).replace("+", "");
  const k = Math.max(-3, Math.min(6, Math.floor(Math.log10(size * 1.0000001) / 3)));
  const prefix = ["n", "µ", "m", "", "k", "M", "G", "T", "P", "E"][k + 3];
  return `${Number((f / 1000 ** k).toPrecision(3))}${prefix ? ` ${prefix}` : ""}`.replace("-", "−");
}

/* 500 ms, 2 s, and without a unit as `short`. */
function sized(x, unit) {
  const said = short(x);
  return unit && /[\d]$/.test(said) ? `${said} ${unit}` : said + unit;
}

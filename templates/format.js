// How quantities are written for people, as ledger/numbers.py writes them.

const THIN = "\u202f";
const PREFIXES = [[1e18, "E"], [1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
const BELOW_SECONDS = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
const [MINUTE, HOUR, DAY] = [60, 3600, 86400];

const rounded = (value, digits) => Number(value.toPrecision(digits));
const power = (value) => Number(value.toExponential().split("e")[1]);

function grouped(text) {
  const [before, ...after] = text.split(".");
  return [before.replace(/\B(?=(\d{3})+$)/g, THIN), ...after].join(".").replace("-", "−");
}

const plain = (value, digits = 3) =>
  value === 0 ? "0" : grouped(value.toFixed(Math.max(digits - 1 - power(rounded(value, digits)), 0)));

function scaled(value, steps, digits) {
  const least = Math.abs(rounded(value, digits));
  const [factor, name] = steps.find(([step]) => least >= step) ?? steps[steps.length - 1];
  return [plain(value / factor, digits), name];
}

function size(bytes) {
  const digits = bytes >= 1000 && power(rounded(bytes, 4)) % 3 === 2 ? 4 : 3;
  const [text, prefix] = scaled(bytes, PREFIXES, digits);
  return prefix ? `${text}${THIN}${prefix}B` : `${grouped(bytes.toFixed(0))}${THIN}B`;
}

function duration(seconds) {
  if (seconds >= 2 * DAY) return `${grouped((seconds / DAY).toFixed(1))}${THIN}days`;
  if (seconds >= 2 * HOUR) return `${plain(seconds / HOUR)}${THIN}h`;
  if (seconds >= 2 * MINUTE) return `${plain(seconds / MINUTE)}${THIN}min`;
  return scaled(seconds, BELOW_SECONDS, 3).join(THIN);
}

function money(dollars) {
  for (const [factor, name] of [[1e9, "B"], [1e6, "M"]])
    if (dollars >= factor) return `$${grouped((dollars / factor).toFixed(1))}${THIN}${name}`;
  return `$${grouped(dollars.toFixed(dollars >= 100 ? 0 : 2))}`;
}

const rate = (tokens) => `${plain(tokens)}${THIN}tokens/s`;
const percent = (share) => `${grouped((share * 100).toFixed(1))}${THIN}%`;
const change = (share) => (percent(share).startsWith("−") ? percent(share) : `+${percent(share)}`);

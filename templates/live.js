// What one device holds and how long a step takes, under sizes that a reader chooses. Every rule is the compiler's own:
// `BLOCKS` are its arithmetic over one array of values, traced; here inputs are written into it and results read out.

const share = (part, of) => (of ? part / of : 0); // an operation of the compiler's arithmetic, as `Math.min` is
const values = new Float64Array(PLAN.size);
const MISSING = "This page does not hold what these values give together; the command line has it with --set, or says why it cannot be";
const UNKNOWN = "A rule was not tried at values like these, so further warnings are possible";

const run = (structure) => { for (const block of PLAN.blocks[structure]) BLOCKS[block](values); };
const meets = (conditions) => conditions.every(([slot, truth]) => Boolean(values[slot]) === Boolean(truth));
const read = ([slot, number]) => (slot < 0 ? number : values[slot]);
const said = (pieces) => pieces.map((piece) => (typeof piece === "number" ? String(values[piece]) : piece)).join("");
const price = (index) => PLAN.inputs.length + index;
const step = (index) => PLAN.inputs.length + PLAN.prices.length + index;

function enter(chosen) {
  PLAN.inputs.forEach((name, index) => { values[index] = chosen[name]; });
  PLAN.prices.forEach((_, index) => { values[price(index)] = 1; });
  run(0);
}

const structureOf = () => PLAN.structures.findIndex(({ guards }) => meets(guards));

// The degree of data parallelism that the number of devices leaves, which is no whole number where they do not share out.
const rest = (chosen) => PLAN.multiplied.filter((axis) => axis !== "data").reduce((product, axis) => product * chosen[axis], 1);
const settled = (chosen, follow) => (follow ? chosen : { ...chosen, data: PLAN.devices / rest(chosen) });

// What rules say of the setting that was entered, and whether one of them was never asked this.
function heard(rules) {
  const told = [];
  let unknown = false;
  for (const { silent, findings } of rules) {
    if (silent.some(meets)) continue;
    const found = findings.filter(({ conditions }) => meets(conditions));
    told.push(...found.map(({ message, help }) => [said(message), said(help)]));
    if (!found.length) unknown = true;
  }
  return { told, unknown };
}

// What speaks against a setting: what a rule says of it, or that this page does not know.
function problems(chosen) {
  if (!Number.isInteger(chosen.data)) {
    const axes = PLAN.multiplied.filter((axis) => axis !== "data").join(" x ");
    return [[`${PLAN.devices} devices are no multiple of ${axes} = ${rest(chosen)}`, "let the number of devices follow"]];
  }
  enter(chosen);
  const { told, unknown } = heard(PLAN.rules);
  return told.length || !(unknown || structureOf() < 0) ? told : [[MISSING, ""]];
}

// What a legal setting is warned of, as far as this page can tell: rules on specs, and the run that never ends.
// Headroom is the panel's, which writes bytes.
function warnings(chosen) {
  enter(chosen);
  const { told, unknown } = heard(PLAN.warnings);
  for (const name of Object.keys(PLAN.notices)) told.push(...PLAN.notices[name][chosen[name]]);
  return unknown ? [...told, [UNKNOWN, ""]] : told;
}

// The resource that shortens a step most by being better: the step again, with each price in turn better than it is.
// What comes before every structure reads prices too: a device without links of its own sends over the host's.
function bottleneck(structure, seconds) {
  values[step(0)] = read(seconds);
  PLAN.prices.forEach((better, index) => {
    values[price(index)] = better;
    run(0);
    run(structure);
    values[step(1 + index)] = read(seconds);
    values[price(index)] = 1;
  });
  run(PLAN.structures.length + 1);
  return PLAN.limits[values[PLAN.limit]];
}

function evaluate(chosen) {
  enter(chosen);
  const found = structureOf();
  const { totals, moment, moments } = PLAN.structures[found];
  run(found + 1);
  const numbers = Object.fromEntries(Object.entries(totals).map(([key, slot]) => [key, read(slot)]));
  const fullest = moments[read(moment)];
  const fits = numbers["memory.reserved"] <= numbers["memory.capacity"];
  const ends = numbers.share === undefined || numbers.share > PLAN.least;
  return { totals: numbers, moment: fullest, bottleneck: bottleneck(found + 1, totals["time.step"]), fits, ends };
}

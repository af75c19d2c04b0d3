// What one device holds and how long a step takes, under sizes that a reader chooses: the compiler's own rules over the
// plan's own formulas. `PLAN` and `formulas` are written by the compiler; every rule here is held to its Python
// counterpart in ledger/books by tests/report/test_live.py.

const named = (keys, rows) => rows.map((row) => Object.fromEntries(keys.map((key, index) => [key, row[index]])));
const KERNEL = ["only", "when", "unit", "recurs", "times", "block", "price", "flops", "bytes", "points", "inner"];
const TRANSFER = ["only", "when", "unit", "recurs", "times", "block", "collective", "axis", "payload", "hides"];
const STOCK = ["only", "category", "first", "last", "bytes"];
const PASSING = ["only", "at", "tensors", "steps"];
for (const ledger of Object.values(PLAN.ledgers)) {
  ledger.kernels = named(KERNEL, ledger.kernels);
  ledger.transfers = named(TRANSFER, ledger.transfers);
  ledger.stocks = named(STOCK, ledger.stocks);
  ledger.passing = named(PASSING, ledger.passing);
}
const sum = (values) => values.reduce((total, value) => total + value, 0);
const largest = (items, key) => items.reduce((best, item) => (key(item) > key(best) ? item : best));
const devicesOf = (chosen) => chosen.data * chosen.tensor * chosen.pipeline * chosen.context;
const microBatches = (chosen) => chosen.global_batch / (chosen.data * chosen.micro_batch);
// Whole bytes: what is not whole to begin with is off by a third, a seventh or so, and rounding by far less.
const whole = (bytes) => Math.floor(bytes + 1e-3);

// --- the rules of a spec (ledger/spec/rules/layout.py) ---

const nearest = (number, step) => `nearest multiples of ${step}: ${[0, step].map((more) => Math.floor(number / step) * step + more)
  .filter((multiple) => multiple > 0).join(" and ")}`;

function* problems(chosen) {
  const { tensor, context, pipeline, seq_len: length } = chosen;
  const devices = devicesOf(chosen), node = PLAN.cluster.devices_per_node;
  if (devices > node && devices % node)
    yield [`${devices} devices are no whole number of nodes of ${node}`, nearest(devices, node)];
  for (const group of PLAN.groups)
    for (const [name, count] of Object.entries(group.splits))
      if (count % tensor) yield [`${name} = ${count} of \`${group.name}\` does not split over tensor = ${tensor}`, ""];
  if (PLAN.vocab % tensor) yield [`vocab = ${PLAN.vocab} does not split over tensor = ${tensor}`, ""];
  const chunks = pipeline * PLAN.interleave;
  if (PLAN.order.length % chunks)
    yield [`${PLAN.order.length} layers do not split into pipeline x interleave = ${chunks} equal chunks`, ""];
  if (length % context) yield [`seq_len = ${length} does not split over context = ${context}`, nearest(length, context)];
  else if (PLAN.sequence_parallel && length % (context * tensor)) {
    const over = context > 1 ? "context x tensor" : "tensor";
    yield [`seq_len = ${length} does not split over ${over} = ${context * tensor} (sequence parallel)`,
      nearest(length, context * tensor)];
  }
  const { data, micro_batch: micro, global_batch: batch } = chosen;
  if (batch % (data * micro))
    yield [`global_batch = ${batch} is no multiple of data x micro_batch = ${data} x ${micro} = ${data * micro}`,
      nearest(batch, data * micro)];
  if (PLAN.positions > 0 && PLAN.positions < length)
    yield [`seq_len = ${length}, but the model has ${PLAN.positions} learned positions`, ""];
}

// --- the schedule (ledger/model/schedule.py) ---

function stages(chosen) {
  const count = chosen.pipeline, chunks = PLAN.interleave, size = PLAN.order.length / (count * chunks);
  return Array.from({ length: count }, (_, stage) => {
    const layers = PLAN.groups.map(() => 0);
    for (let chunk = 0; chunk < chunks; chunk++)
      for (let index = 0; index < size; index++) layers[PLAN.order[(chunk * count + stage) * size + index]]++;
    const first = stage === 0, last = stage === count - 1;
    return { first, last, layers, inFlight: inFlight(chosen, stage), sends: chunks - last, returns: chunks - first };
  });
}

function inFlight(chosen, stage) {
  const count = microBatches(chosen), chunks = PLAN.interleave, ahead = chosen.pipeline - stage;
  if (PLAN.schedule === "gpipe") return count;
  if (chunks === 1) return Math.min(count, ahead);
  return Math.min(count * chunks, 2 * (ahead - 1) + (chunks - 1) * chosen.pipeline + 1) / chunks;
}

// The value of every symbol in one role (ledger/books/bindings.py).
function sizes(chosen, role) {
  const found = { ...PLAN.sizes, A: role.inFlight, M: microBatches(chosen), Sf: role.sends, Sb: role.returns, Q: 0 };
  for (const [name, sign] of Object.entries(PLAN.signs)) found[sign] = chosen[name];
  PLAN.groups.forEach((group, index) => {
    found[group.layers] = role.layers[index];
    found[group.flying] = role.inFlight;
    if (group.window) found[group.window[0]] = Math.min(group.window[1], chosen.seq_len);
  });
  return found;
}

// --- memory (ledger/books/memory/holdings.py) ---

function fullest(ledger, values, several) {
  const moments = ledger.moments.map(() => PLAN.categories.map(() => 0));
  const add = (moment, category, formula) => { moments[moment][category] += whole(values[formula]); };
  for (const stock of ledger.stocks)
    if (runs(stock, several))
      for (let moment = stock.first; moment <= stock.last; moment++) add(moment, stock.category, stock.bytes);
  for (const { at, tensors, steps } of ledger.passing.filter((row) => runs(row, several))) {
    const step = largest(steps, (members) => sum(members.map((index) => values[tensors[index][1]])));
    for (const moment of at)
      for (const [category, formula] of step.map((index) => tensors[index])) add(moment, category, formula);
  }
  const peak = largest(moments, sum);
  const at = moments.indexOf(peak);
  const held = sum(peak) + PLAN.stack.library + whole(values[ledger.workspaces[at]]);
  const reserved = Math.trunc(held * PLAN.stack.fragmentation) + PLAN.stack.context;
  return { bytes: sum(peak), parts: peak, title: ledger.moments[at], reserved };
}

// Whether an entry is there: `only` is 1 for one micro-batch a step, 2 for several, 0 for both.
const runs = (entry, several) => entry.only === 0 || (entry.only === 2) === several;

// --- prices (ledger/books/prices.py) ---

// What each price of the plan is multiplied by (ledger/books/repricing.py).
const PLANNED = Object.fromEntries(Object.keys(PLAN.limits).map((name) => [name, 1]));

const level = (price) => (price.levelled ? PLAN.stack.matmul_level : 1);

const FORMS = {
  matmul(price, { flops, bytes, points, inner }) {
    const tiles = (PLAN.device.multiprocessors * 128 * 256) / points;
    const compute = (flops / (price.e * price.rate)) * (1 + (price.k0 ?? 0) / inner) * (1 + (price.c ?? 0) * tiles);
    return ((price.t0 ?? 0) + Math.max(compute, bytes / ((price.b ?? 1) * price.bandwidth))) / level(price);
  },
  grouped(price, { flops, bytes, points }) {
    const compute = (flops / (price.e * price.rate)) * (1 + (price.m0 ?? 0) / points);
    return ((price.t0 ?? 0) + Math.max(compute, bytes / ((price.b ?? 1) * price.bandwidth))) / level(price);
  },
  attention: (price, { flops, points }) => (price.t0 ?? 0) + (flops * (1 + (price.s0 ?? 0) / points)) / (price.e * price.rate),
  typical: (price, { flops, bytes }) => Math.max(flops / (price.e * price.rate), bytes / (price.b * price.bandwidth)),
  bandwidth: (price, { bytes }) => (price.t0 ?? 0) + bytes / (price.b * price.bandwidth),
};

function kernel(row, values, rates) {
  const known = PLAN.prices[row.price];
  const rate = known.rate * (known.matrix ? rates.matmul : 1), bandwidth = PLAN.device.bandwidth * rates.memory;
  const price = { ...known, rate, bandwidth };
  const work = { flops: values[row.flops], bytes: values[row.bytes], points: values[row.points], inner: values[row.inner] };
  const floor = Math.max(work.flops / rate, work.bytes / bandwidth);
  const seconds = Math.max(FORMS[price.form](price, work), floor);
  return { ...row, seconds, floor, kind: price.kind, error: price.error, times: values[row.times] };
}

const ORDER = ["tensor", "context", "data", "pipeline"];

function mesh(axis, chosen) {
  let size = chosen[axis], stride = 1;
  for (const inner of ORDER.slice(0, ORDER.indexOf(axis))) stride *= chosen[inner];
  if (axis === "data") [stride, size] = [stride / chosen.context, size * chosen.context];
  const domain = Math.max(PLAN.device.scaleup_domain, PLAN.cluster.devices_per_node);
  const local = Math.max(1, Math.min(size, Math.floor(domain / stride)));
  return { size, local, span: local * stride, domains: Math.ceil(size / local) };
}

const FACTOR = {
  all_reduce: (ranks) => (2 * (ranks - 1)) / ranks,
  all_gather: (ranks) => (ranks - 1) / ranks,
  reduce_scatter: (ranks) => (ranks - 1) / ranks,
  all_to_all: (ranks) => (ranks - 1) / ranks,
  send: () => 1,
};

// The fit of the nearest group, sustained before burst.
function curve(collective, ranks) {
  const far = (fit) => (ranks && fit.ranks ? Math.abs(fit.ranks - ranks) / ranks : 0);
  const nearer = (one, other) => far(one) - far(other) || one.burst - other.burst;
  return PLAN.curves[collective].reduce((best, fit) => (best === null || nearer(fit, best) < 0 ? fit : best), null);
}

function transfer(row, values, chosen, rates) {
  const { device, cluster } = PLAN, { collective, axis } = row;
  const where = mesh(axis, chosen), payload = values[row.payload], sends = collective === "send";
  const priced = { ...row, kind: `${collective}.${axis}`, times: values[row.times] };
  if (where.size === 1 || payload === 0) return { ...priced, seconds: 0, floor: 0, error: 0 };
  const sent = payload * FACTOR[collective](where.size), crosses = where.domains > 1;
  const linked = device.scaleup_bandwidth && where.span <= device.scaleup_domain;
  const inside = linked ? device.scaleup_bandwidth * rates.scaleup : device.host_bandwidth * rates.host;
  const cards = cluster.scaleout_bandwidth * rates.scaleout * (sends ? 1 : where.local);
  const line = crosses ? (where.local > 1 ? Math.min(inside, cards) : cards) : inside;
  const fit = curve(collective, where.local > 1 ? where.local : where.size);
  let bus = fit ? fit.B * rates.scaleup : PLAN.typical_bus * inside, start = fit ? fit.a : 0;
  if (crosses) {
    const reach = cards * cluster.scaleout_efficiency;
    bus = where.local > 1 ? Math.min(bus, reach) : reach;
    start += cluster.scaleout_latency * (sends ? 1 : where.size - 1);
  }
  const x = sent / bus, seconds = start + x + (sends ? 0 : Math.sqrt(start * x));
  const floor = sent / line;
  return { ...priced, seconds: Math.max(seconds, floor), floor, error: fit && !crosses ? fit.error : PLAN.uncalibrated };
}

// --- time (ledger/books/time.py) ---

const KINDS = ["tensor", "context", "expert", "data"];
const PASSES = { forward: ["forward"], backward: ["recompute", "backward"] };
const network = (pass) => sum(KINDS.map((kind) => pass[kind]));
const spent = (rows) => sum(rows.map((row) => row.seconds * row.times));

function timed({ ledger, values, role }, chosen, rates = PLANNED) {
  const count = microBatches(chosen), several = count > 1, { stack } = PLAN;
  const kernels = ledger.kernels.filter((row) => runs(row, several)).map((row) => kernel(row, values, rates));
  const moved = ledger.transfers.filter((row) => runs(row, several));
  const transfers = moved.map((row) => transfer(row, values, chosen, rates));
  const sends = transfers.filter((row) => row.collective === "send");
  const recurring = [...kernels, ...transfers.filter((row) => row.collective !== "send")].filter((row) => row.recurs);
  const passes = Object.entries(PASSES).flatMap(([name, phases]) => {
    const mine = recurring.filter((row) => phases.includes(row.when));
    return [...new Set(mine.map((row) => row.unit))].map((unit) =>
      stretch(name, unit, mine.filter((row) => row.unit === unit), count, rates));
  });
  const often = Math.max(role.sends, role.returns);
  const waits = stack.sends_wait ? 2 * often * Math.max(0, ...sends.map((row) => row.seconds)) : 0;
  const once = finish(transfers.filter((row) => !row.recurs), passes);
  return {
    kernels, transfers, passes, sends: waits, once,
    optimizer: spent(kernels.filter((row) => row.when === "optimizer")),
    microBatch: sum(passes.map((pass) => pass.device + pass.launch + network(pass) + pass.tax)) + waits,
  };
}

function stretch(name, unit, rows, count, rates) {
  const seconds = (chosen) => spent(chosen) / count;
  const compute = rows.filter((row) => "price" in row), moved = rows.filter((row) => "collective" in row);
  const { stack } = PLAN;
  const device = seconds(compute);
  const launches = (stack.launch * rates.launch * sum(rows.map((row) => row.times))) / count;
  const hiding = moved.filter((row) => row.hides), matmuls = compute.filter((row) => row.kind.startsWith("matmul"));
  const of = (rows, block) => seconds(rows.filter((row) => row.block === block));
  const blocks = [...new Set(hiding.map((row) => row.block))].filter((block) => block);
  const behindMatmul = sum(blocks.map((block) => Math.min(of(hiding, block), of(matmuls, block))));
  const shown = Object.fromEntries(KINDS.map((kind) => [kind, seconds(moved.filter((row) => cargo(row) === kind))]));
  shown.tensor -= behindMatmul;
  const launch = Math.max(0, launches - device - network(shown) + shown.data);
  const room = stack.hides[name] && unit !== PLAN.root ? device + launch - behindMatmul : 0;
  const behindUnit = Math.min(shown.data, room);
  shown.data -= behindUnit;
  return { name, device, launch, tax: stack.overlap_tax * (behindMatmul + behindUnit), ...shown };
}

// Transfers once a step: gradients after the last backward, weights before the next forward.
function finish(moved, passes) {
  const taken = (name) => sum(passes.filter((pass) => pass.name === name).map((pass) => pass.device + pass.launch));
  const late = moved.filter((row) => row.when !== "optimizer");
  let gradients = spent(late), weights = spent(moved.filter((row) => row.when === "optimizer"));
  if (PLAN.stack.gradients_hide)
    gradients = Math.max(0, ...late.map((row) => row.seconds), gradients - taken("backward"));
  if (PLAN.stack.weights_hide) weights = Math.max(0, weights - taken("forward"));
  return gradients + weights;
}

function step(times, chosen) {
  const count = microBatches(chosen), slowest = largest(times, (time) => time.microBatch);
  const bubble = (sum(times.map((time) => time.microBatch)) - slowest.microBatch) / PLAN.interleave;
  const optimizer = Math.max(...times.map((time) => time.optimizer));
  const once = Math.max(...times.map((time) => time.once));
  const passes = (key) => count * sum(slowest.passes.map((pass) => pass[key]));
  const kernels = spent(slowest.kernels.filter((row) => row.when !== "optimizer"));
  const waited = sum(KINDS.map(passes)) + once + slowest.sends * count;
  const seconds = kernels + waited + passes("tax") + passes("launch") + bubble + optimizer;
  return { seconds, roofline: Math.max(...times.map(roofline)), error: deviation(slowest, count, seconds) };
}

// The resource that shortens a step most by being better (ledger/books/repricing.py, paces); `under` is the step's time
// where prices are multiplied by what it is given.
function bottleneck(under) {
  const seconds = under(PLANNED);
  const paces = Object.entries(PLAN.limits).map(([name, { limit, better }]) => {
    const faster = under({ ...PLANNED, [name]: (1 + PLAN.faster) ** better });
    return { limit, pace: Math.log(seconds / faster) / Math.log(1 + PLAN.faster) };
  });
  const fixed = { limit: PLAN.fixed, pace: 1 - sum(paces.map((row) => row.pace)) };
  return largest([...paces, fixed], (row) => row.pace).limit;
}

// Each kernel at its data sheet's limit; transfers only if the busiest axis takes more.
function roofline(time) {
  const least = (rows) => sum(rows.map((row) => row.floor * row.times));
  const wire = ORDER.map((axis) => least(time.transfers.filter((row) => row.axis === axis)));
  return Math.max(least(time.kernels), ...wire);
}

// What a transfer moves: activations within a layer, by axis; those between stages; or weights and their gradients.
const cargo = ({ collective, axis }) =>
  collective === "send" && axis === "pipeline" ? "pipeline" : KINDS.includes(axis) ? axis : "data";

// One standard deviation of the step, relative: errors of one curve add up, those of several partly cancel. Transfers
// count with the share of their seconds that the step waits for.
function deviation(slowest, count, seconds) {
  const shown = (key) => count * sum(slowest.passes.map((pass) => pass[key]));
  const waited = Object.fromEntries(KINDS.map((kind) => [kind, shown(kind)]));
  waited.data += slowest.once;
  waited.pipeline = count * slowest.sends;
  const moved = (kind) => spent(slowest.transfers.filter((row) => cargo(row) === kind));
  const share = Object.fromEntries(Object.entries(waited).map(([kind, part]) => [kind, Math.min(1, part / (moved(kind) || 1))]));
  const errors = {};
  for (const row of [...slowest.kernels, ...slowest.transfers]) {
    const counted = "collective" in row ? share[cargo(row)] : 1;
    errors[row.kind] = (errors[row.kind] ?? 0) + (row.error * counted * row.seconds * row.times) / seconds;
  }
  return Math.sqrt(sum([...Object.values(errors), PLAN.unseen].map((error) => (PLAN.deviation * error) ** 2)));
}

// --- all of it, by the keys of the compiler's totals ---

function evaluate(chosen) {
  const seen = new Map(), several = microBatches(chosen) > 1;
  const found = stages(chosen).map((role) => {
    const key = JSON.stringify(role);
    if (!seen.has(key)) {
      const held = role.layers.map((layers) => Math.min(layers, PLAN.told_apart)).join(" ");
      const ledger = PLAN.ledgers[`${held}${role.first ? " first" : ""}${role.last ? " last" : ""}`];
      const values = formulas(sizes(chosen, role));
      seen.set(key, { peak: fullest(ledger, values, several), books: { ledger, values, role } });
    }
    return seen.get(key);
  });
  const { peak } = largest(found, (role) => role.peak.bytes);
  const { reserved } = peak;
  const books = [...new Set(found.map((role) => role.books))];
  const under = (rates) => {
    const times = new Map(books.map((one) => [one, timed(one, chosen, rates)]));
    return step(found.map((role) => times.get(role.books)), chosen);
  };
  const time = under(PLANNED);
  const devices = devicesOf(chosen), tokens = chosen.global_batch * chosen.seq_len;
  const totals = {
    "memory.peak": peak.bytes, "memory.reserved": reserved, "memory.capacity": PLAN.device.memory,
    "time.step": time.seconds,
    "time.step.low": Math.max(time.roofline, time.seconds * (1 - Math.min(time.error, 0.9))),
    "time.step.high": time.seconds * (1 + time.error), tokens_per_second: tokens / time.seconds,
  };
  PLAN.categories.forEach((name, index) => { totals[`memory.${name}`] = peak.parts[index]; });
  if (PLAN.tokens) totals["time.run"] = Math.ceil(PLAN.tokens / tokens) * time.seconds;
  if (PLAN.tokens && PLAN.price) totals["cost.run"] = (devices * PLAN.price * totals["time.run"]) / 3600;
  const limit = bottleneck((rates) => under(rates).seconds);
  return { totals, devices, moment: peak.title, bottleneck: limit, fits: reserved <= PLAN.device.memory };
}

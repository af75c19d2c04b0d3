// The panel: controls in, numbers out. It shows what `evaluate` says, and the words of `problems` where a choice breaks
// a rule; then there are no numbers until the choice is legal again.

const panel = document.getElementById("live");
const part = (name) => panel.querySelector(`[data-part="${name}"]`);
const WRITTEN = { "memory.reserved": size, "time.step": duration, "time.calendar": duration, "cost.run": money, tokens_per_second: rate,
  devices: (count) => grouped(String(count)) };
const AROUND = 64; // integers on each side of a refused one that are tried
const plan = evaluate(PLAN.own);
let chosen = { ...PLAN.own }, follow = false, last = "", faults = [];

const answered = (setting) => problems(setting).length === 0;
const withValue = (name, value) => {
  const other = { ...chosen, [name]: value };
  const priced = "price" in chosen && chosen.price === PLAN.offers[chosen.accelerator].price;
  if (name === "accelerator" && priced) other.price = PLAN.offers[value].price;
  return settled(other, follow);
};

// Values on offer by themselves; those of the global batch are whole micro-batches on every replica.
function listed(name) {
  if (name !== "global_batch") return PLAN.stops[name];
  const replica = chosen.data * chosen.micro_batch, most = 8 * Math.max(PLAN.own.global_batch, replica);
  const values = new Set([PLAN.own.global_batch]);
  for (let count = 1; count * replica <= most; count *= 2)
    for (const times of [count, 3 * count]) if (times * replica <= most) values.add(times * replica);
  return [...values];
}

const ascending = (values) => [...new Set(values)].sort((one, other) => one - other);
// A degree is on offer where it can be with another batch, which the refusal names; a size where it can be as it is.
const offered = (name) => ascending([chosen[name], ...listed(name).filter((value) =>
  (PLAN.multiplied.includes(name) ? completed(name, value) : answered(withValue(name, value))))]);

// What gives a control this value legally: itself, or with the largest smaller micro-batch or the next larger batch that can.
function completed(name, value) {
  const setting = withValue(name, value), replica = setting.data * setting.micro_batch;
  if (answered(setting)) return { [name]: value };
  if (!Number.isInteger(setting.data)) return undefined;
  for (const micro of [...PLAN.stops.micro_batch].reverse().filter((one) => name !== "micro_batch" && one < setting.micro_batch))
    if (answered({ ...setting, micro_batch: micro })) return { [name]: value, micro_batch: micro };
  const batch = Math.ceil(setting.global_batch / replica) * replica;
  return name !== "global_batch" && answered({ ...setting, global_batch: batch }) ? { [name]: value, global_batch: batch } : undefined;
}

// What is nearest to a value that cannot be: with it, and with the values below and above that can.
function nearest(name) {
  const value = chosen[name], close = Array.from({ length: 2 * AROUND + 1 }, (_, index) => value - AROUND + index);
  const replica = chosen.data * chosen.micro_batch, below = Math.floor(value / replica) * replica;
  const around = isWord(name) ? [] : name === "global_batch" ? [below, below + replica] : close, tried = [...around, ...listed(name)];
  const other = ascending(tried).filter((one) => one !== value && (one > 0 || PLAN.stops[name]?.includes(one)));
  const first = (values) => values.map((one) => () => completed(name, one)).reduce((found, attempt) => found ?? attempt(), undefined);
  return [completed(name, value), first(other.filter((one) => one < value).reverse()), first(other.filter((one) => one > value))]
    .filter(Boolean);
}

function move(name, value) {
  last = name;
  faults = [];
  chosen = withValue(name, value);
  show();
}

const controls = [...panel.querySelectorAll("[data-name]")].map((input) => {
  const control = { input, name: input.dataset.name, kind: input.dataset.kind, values: [] };
  input.addEventListener(control.kind === "range" ? "input" : "change", () => {
    const { name, kind } = control, number = Number(input.value);
    if (kind === "range") move(name, control.values[number]);
    else if (kind === "word") move(name, number);
    else if (input.value !== "" && number > 0 && (kind === "amount" || (Number.isInteger(number) && number <= PLAN.most)))
      move(name, kind === "amount" ? typed(name, number) : number);
    else show(`${input.value === "" ? "Nothing" : input.value} is no value of ${titled(name)}: it stays ${text(name, chosen[name])}`);
  });
  return control;
});
const titled = (name) => panel.querySelector(`label[for="live-${name}"]`).textContent.split(",")[0].trim(); // without its unit
const text = (name, value) =>
  isWord(name) ? PLAN.words[name][value] : isAmount(name) ? String(shown(name, value)) : Number.isInteger(value) ? String(value) : plain(value);

function place({ input, name, kind }, index) {
  const control = controls[index];
  if (kind === "range") {
    control.values = offered(name);
    input.max = String(control.values.length - 1);
    input.value = String(control.values.indexOf(chosen[name]));
    input.setAttribute("aria-valuetext", text(name, chosen[name]));
  } else if (!Number.isFinite(chosen[name]) || (kind === "size" && !Number.isInteger(chosen[name]))) input.value = "";
  else input.value = kind === "word" ? String(chosen[name]) : kind === "amount" ? text(name, chosen[name]) : String(exact(chosen[name]));
  input.disabled = name === "data" && !follow;
  input.setAttribute("aria-invalid", String(name === last && panel.classList.contains("broken")));
  panel.querySelector(`label[for="live-${name}"]`).classList.toggle("moved", moved(chosen).includes(name));
}

function line(item, content) {
  const made = document.createElement(item), pieces = content.split("`"); // keys stand in backticks
  if (pieces.length > 1) made.append(...pieces.map((piece, index) => (index % 2 ? line("code", piece) : piece)));
  else made.textContent = content;
  return made;
}

// What cannot be, why, and the nearest that can, as buttons: other values of the same control, or what would allow this one.
function refuse(broken) {
  const told = part("problems"), words = broken.map(([message, help]) => (help ? `${message}; ${help}` : message));
  const head = broken.length && last ? `${titled(last)} ${text(last, chosen[last])} cannot be shown: ` : "";
  told.replaceChildren(...(words.length ? [line("span", `${head}${words.join(". ")}.`)] : []));
  if (!broken.length || !last) return;
  const can = nearest(last);
  if (can.length) told.append(line("span", " Nearest:"));
  for (const values of can) {
    const button = line("button", Object.entries(values).map(([name, value]) => `${titled(name)} ${text(name, value)}`).join(", "));
    button.type = "button";
    button.addEventListener("click", () => {
      for (const [name, value] of Object.entries(values).reverse()) move(name, value);
      panel.querySelector(`#live-${last}`).focus();
    });
    told.append(button);
  }
}

function show(note = "") {
  const broken = problems(chosen), verdict = part("verdict");
  panel.classList.toggle("broken", broken.length > 0);
  controls.forEach(place);
  part("follow").checked = follow;
  part("faults").textContent = [note, ...faults.map((pair) => `The link's “${pair}” is no value of this panel and was left out`)]
    .filter(Boolean).join(". ");
  refuse(broken);
  const illegal = broken.some(([message]) => message !== MISSING);
  for (const name of ["set", "yaml"]) part(name).disabled = illegal;
  part("copied").textContent = "";
  remember();
  if (broken.length) {
    verdict.className = "verdict open";
    part("answer").textContent = illegal ? "Not possible" : "Not in this page";
    part("sentence").textContent = "";
    return;
  }
  const found = evaluate(chosen);
  verdict.className = `verdict ${found.fits && found.ends ? "fits" : "fails"}`;
  part("answer").textContent = !found.fits ? "Does not fit" : found.ends ? "Fits" : "Fits, and never ends";
  part("sentence").textContent = sentence(found.totals);
  part("bottleneck").textContent = found.bottleneck;
  part("moment").textContent = found.moment;
  part("warnings").replaceChildren(...warned(found).map((content) => line("li", content)));
  for (const item of panel.querySelectorAll("[data-key]")) figure(item, found);
  bars(found);
}

// What `ledger check` warns of that moves with the controls.
function warned({ totals, ends }) {
  const free = totals["memory.capacity"] - totals["memory.reserved"], wanted = totals.headroom, short = size(wanted - free);
  const said = warnings(chosen).map(([message, help]) => (help ? `${message}; ${help}` : message));
  if (free < 0) said.unshift(`${size(-free)} of memory are missing`);
  else if (free < wanted) said.unshift(`${size(free)} free, ${short} short of the ${size(wanted)} of ${PLAN.headroom} headroom`);
  if (!ends) said.unshift("failures, checkpoints and evaluation take more time than there is, so the run gets nowhere");
  return said;
}

function sentence(totals) {
  const spare = totals["memory.capacity"] - totals["memory.reserved"];
  const memory = `${size(Math.abs(spare))} ${spare >= 0 ? "stay free" : "are missing"} on the fullest device`;
  const step = `a step takes between ${duration(totals["time.step.low"])} and ${duration(totals["time.step.high"])}`;
  return `${memory}; ${step}.`;
}

// One number with its ends, the plan's own, and the way from there. What does not fit, or never ends, has no length and no price.
function figure(item, found) {
  const { key } = item.dataset, value = found.totals[key], own = plan.totals[key];
  item.hidden = value === undefined;
  if (item.hidden) return;
  const write = WRITTEN[key] ?? size, ends = item.querySelector("[data-ends]");
  const [low, high] = [found.totals[`${key}.low`], found.totals[`${key}.high`]], known = has(found, key);
  if (ends) ends.textContent = low === undefined || !known ? "" : `${write(low)} to ${write(high)}`;
  item.querySelector("[data-value]").textContent = known ? write(value) : "–";
  if (!known || !has(plan, key)) {
    item.querySelector("[data-own]").textContent = has(plan, key) ? `plan ${write(own)}` : "the plan has none";
    return;
  }
  const share = own ? change(value / own - 1) : "", same = write(value) === write(own) && /^([+−]0\.0\D*)?$/.test(share);
  item.querySelector("[data-own]").textContent = same ? "as in the plan" : `plan ${write(own)}${share && ` (${share})`}`;
}

// Whether a setting has a number: of a run that cannot be made there is neither length nor price.
function has({ fits, ends }, key) {
  return (fits && ends) || !PLAN.of_a_run.includes(key);
}

// Two stacked bars on one scale, which ends beyond the largest of all that is needed and the capacities.
function bars(found) {
  const scale = Math.max(...[found, plan].flatMap(({ totals }) => [totals["memory.reserved"], totals["memory.capacity"]])) * 1.02;
  for (const [name, { totals }] of [["bar", found], ["plan-bar", plan]]) {
    let start = 0;
    for (const rect of part(name).querySelectorAll("rect[data-category]")) {
      const { category } = rect.dataset;
      const bytes = category === "overhead" ? totals["memory.reserved"] - totals["memory.peak"] : totals[`memory.${category}`];
      rect.setAttribute("x", String((1000 * start) / scale));
      rect.setAttribute("width", String((1000 * bytes) / scale));
      start += bytes;
    }
    part(name).querySelector("rect.limit").setAttribute("x", String((1000 * totals["memory.capacity"]) / scale - 1));
  }
  part("capacity").textContent = size(found.totals["memory.capacity"]);
}

// --- the page's address, and copies ---

function remember() {
  const hash = fragment(chosen, follow);
  if (hash === location.hash || (!hash && !location.hash.startsWith(PREFIX))) return;
  try { history.replaceState(null, "", hash || "#live"); } catch { /* a viewer that keeps its address */ }
}

function recall() {
  if (!location.hash.startsWith(PREFIX)) return;
  ({ chosen, follow, faults } = restored(location.hash));
  last = moved(chosen).find((name) => name !== "data") ?? "";
  show();
  panel.scrollIntoView();
}

// The clipboard, or where a browser gives a page none: the text itself, selected, and the old way.
async function copy(content) {
  const box = part("text"), told = part("copied");
  box.hidden = false;
  box.value = content;
  box.rows = content.split("\n").length;
  let done = false;
  try {
    await navigator.clipboard.writeText(content);
    done = true;
  } catch {
    box.focus();
    box.select();
    try { done = document.execCommand("copy"); } catch { /* the text is selected */ }
  }
  told.textContent = done ? "Copied." : "Selected: copy it with Ctrl+C.";
}

part("set").addEventListener("click", () => copy(commandLine(chosen)));
part("yaml").addEventListener("click", () => copy(yaml(chosen) || "# as in the plan"));
part("follow").addEventListener("change", () => {
  follow = part("follow").checked;
  if (!follow) chosen = settled(chosen, follow);
  show();
});
part("reset").addEventListener("click", () => { chosen = { ...PLAN.own }; follow = false; last = ""; faults = []; show(); });
for (const hidden of document.querySelectorAll("[data-live]")) hidden.hidden = false;
if (location.hash.startsWith(PREFIX)) recall();
else show();
window.addEventListener("hashchange", recall);

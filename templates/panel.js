// The panel: controls in, numbers out. It shows what `evaluate` says, and the words of `problems` where a choice breaks
// a rule; then the last numbers stay, faded, until the choice is legal again.

const panel = document.getElementById("live");
const part = (name) => panel.querySelector(`[data-part="${name}"]`);
const WRITTEN = { "memory.reserved": size, "time.step": duration, "time.calendar": duration, "cost.run": money, tokens_per_second: rate,
  devices: (count) => grouped(String(count)) };
const plan = evaluate(PLAN.own);
let chosen = { ...PLAN.own };

// Values on offer: legal by themselves; those of the global batch are whole micro-batches on every replica.
function offered(name) {
  if (name !== "global_batch") return PLAN.stops[name];
  const replica = chosen.data * chosen.micro_batch, most = 8 * Math.max(PLAN.own.global_batch, replica);
  const values = new Set([chosen.global_batch]);
  if (PLAN.own.global_batch % replica === 0) values.add(PLAN.own.global_batch);
  for (let count = 1; count * replica <= most; count *= 2)
    for (const times of [count, 3 * count]) if (times * replica <= most) values.add(times * replica);
  return [...values].sort((one, other) => one - other);
}

const controls = [...panel.querySelectorAll("input[type=range]")].map((input) => {
  const control = { input, name: input.dataset.name, values: [] };
  input.addEventListener("input", () => {
    chosen[control.name] = control.values[Number(input.value)];
    show();
  });
  return control;
});

function place(control) {
  const { input, name } = control, text = grouped(String(chosen[name]));
  control.values = offered(name);
  input.max = String(control.values.length - 1);
  input.value = String(control.values.indexOf(chosen[name]));
  input.setAttribute("aria-valuetext", text);
  input.labels[0].classList.toggle("moved", chosen[name] !== PLAN.own[name]);
  panel.querySelector(`output[for="${input.id}"]`).textContent = text;
}

function show() {
  controls.forEach(place);
  const broken = [...problems(chosen)], verdict = part("verdict");
  panel.classList.toggle("broken", broken.length > 0);
  part("problems").textContent = broken.map(([message, help]) => (help ? `${message}; ${help}` : message)).join(". ");
  if (broken.length) {
    verdict.className = "verdict open";
    part("answer").textContent = broken.some(([message]) => message !== MISSING) ? "Not possible" : "Not in this page";
    part("sentence").textContent = "";
    return;
  }
  const found = evaluate(chosen);
  verdict.className = `verdict ${found.fits ? "fits" : "fails"}`;
  part("answer").textContent = found.fits ? "Fits" : "Does not fit";
  part("sentence").textContent = sentence(found.totals);
  part("bottleneck").textContent = found.bottleneck;
  part("moment").textContent = found.moment;
  for (const item of panel.querySelectorAll("[data-key]")) figure(item, found);
  bars(found);
}

function sentence(totals) {
  const spare = totals["memory.capacity"] - totals["memory.reserved"];
  const memory = `${size(Math.abs(spare))} ${spare >= 0 ? "stay free" : "are missing"} on the fullest device`;
  const step = `a step takes between ${duration(totals["time.step.low"])} and ${duration(totals["time.step.high"])}`;
  return `${memory}; ${step}.`;
}

// One number, with the plan's own and the way from there.
function figure(item, found) {
  const { key } = item.dataset, of = (result) => result.totals[key];
  const value = of(found), own = of(plan);
  item.hidden = value === undefined;
  if (item.hidden) return;
  const write = WRITTEN[key] ?? size;
  item.querySelector("[data-value]").textContent = write(value);
  const step = own ? ` (${change(value / own - 1)})` : "";
  item.querySelector("[data-own]").textContent = value === own ? "as in the plan" : `plan ${write(own)}${step}`;
}

// Two stacked bars on one scale, which ends beyond the larger of all that is needed and the capacity.
function bars(found) {
  const scale = Math.max(found.totals["memory.reserved"], plan.totals["memory.reserved"], PLAN.capacity) * 1.02;
  for (const [name, { totals }] of [["bar", found], ["plan-bar", plan]]) {
    let start = 0;
    for (const rect of part(name).querySelectorAll("rect[data-category]")) {
      const { category } = rect.dataset;
      const bytes = category === "overhead" ? totals["memory.reserved"] - totals["memory.peak"] : totals[`memory.${category}`];
      rect.setAttribute("x", String((1000 * start) / scale));
      rect.setAttribute("width", String((1000 * bytes) / scale));
      start += bytes;
    }
    part(name).querySelector("rect.limit").setAttribute("x", String((1000 * PLAN.capacity) / scale - 1));
  }
}

part("reset").addEventListener("click", () => { chosen = { ...PLAN.own }; show(); });
for (const hidden of document.querySelectorAll("[data-live]")) hidden.hidden = false;
show();

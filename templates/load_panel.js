// The panel of a service: controls in, numbers out. It shows what `evaluate` says, and says so where it knows nothing.

const panel = document.getElementById("load");
const part = (name) => panel.querySelector(`[data-part="${name}"]`);
const WRITTEN = { "memory.reserved": size, "serve.ttft": duration, "serve.ttft.under_load": duration, "serve.time_per_token": duration,
  "serve.tokens_per_second": rate, "serve.requests_per_second": (answers) => `${plain(answers)}${THIN}requests/s`,
  "cost.per_million_tokens": money };
const counted = (number) => (Number.isInteger(number) ? grouped(String(number)) : plain(number));
const plan = evaluate(PLAN.own), selects = [...panel.querySelectorAll("[data-name]")];
let chosen = [...PLAN.own];

function figure(item, totals) {
  const { key } = item.dataset, value = totals[key], own = plan.totals[key], write = WRITTEN[key] ?? counted;
  item.hidden = value === undefined && own === undefined;
  item.querySelector("[data-value]").textContent = value === undefined ? "–" : write(value);
  const share = own && value !== undefined && value !== own ? ` (${change(value / own - 1)})` : "";
  item.querySelector("[data-own]").textContent = own === undefined ? "the plan has none" : value === own ? "as in the plan" : `plan ${write(own)}${share}`;
}

function show() {
  const found = evaluate(chosen), verdict = part("verdict");
  selects.forEach((select, index) => {
    select.value = String(chosen[index]);
    panel.querySelector(`label[for="${select.id}"]`).classList.toggle("moved", chosen[index] !== PLAN.own[index]);
  });
  panel.classList.toggle("broken", !found);
  part("problems").textContent = found ? "" : `${MISSING}.`;
  part("text").hidden = true;
  verdict.className = found ? `verdict ${found.answer === "Fits" ? "fits" : "fails"}` : "verdict open";
  part("answer").textContent = found ? found.answer : "Not in this page";
  if (!found) return;
  for (const item of panel.querySelectorAll("[data-key]")) figure(item, found.totals);
  const { "memory.reserved": reserved, "memory.capacity": capacity } = found.totals;
  part("sentence").textContent = `${size(Math.abs(capacity - reserved))} ${capacity >= reserved ? "stay free" : "are missing"} on the fullest device.`;
}

selects.forEach((select, index) => select.addEventListener("change", () => { chosen[index] = Number(select.value); show(); }));
part("reset").addEventListener("click", () => { chosen = [...PLAN.own]; show(); });
part("set").addEventListener("click", async () => {
  const box = part("text"), content = commandLine(chosen);
  box.hidden = false;
  box.value = content;
  try { await navigator.clipboard.writeText(content); } catch { box.focus(); box.select(); }
});
for (const hidden of document.querySelectorAll("[data-live]")) hidden.hidden = false;
show();

// A setting as text: the fragment of the page's address, a command line with `--set`, and a piece of a plan.

const PREFIX = "#whatif:";
const SAFE = /^[\w@%+=:,./-]+$/;
const isWord = (name) => Object.hasOwn(PLAN.words, name);
const isAmount = (name) => Object.hasOwn(PLAN.units, name);
const exact = (value) => Number(value.toPrecision(12)); // in units people type, without the noise of the last digits
const shown = (name, value) => exact(value / PLAN.units[name][1]);
const typed = (name, number) => (name === "tokens" ? Math.round(number * PLAN.units[name][1]) : number * PLAN.units[name][1]);
const quoted = (text) => (SAFE.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`);

// The controls that are not as in the plan; another device brings its own price.
function moved(chosen) {
  return PLAN.inputs.filter((name) => chosen[name] !== (name === "price" ? PLAN.offers[chosen.accelerator].price : PLAN.own[name]));
}

function fragment(chosen, follow) {
  const pairs = moved(chosen).filter((name) => follow || name !== "data")
    .map((name) => `${name}=${encodeURIComponent(isWord(name) ? PLAN.words[name][chosen[name]] : String(chosen[name]))}`);
  if (follow) pairs.push("devices=follow");
  return pairs.length ? PREFIX + pairs.join(",") : "";
}

// What a fragment asks for: a setting, whether devices follow, and what in it could not be read.
function restored(hash) {
  const state = { chosen: { ...PLAN.own }, follow: false, faults: [] }, priced = [];
  for (const pair of hash.slice(PREFIX.length).split(",").filter(Boolean)) {
    const [name, coded = ""] = pair.split("=");
    let text = coded;
    try { text = decodeURIComponent(coded); } catch { state.faults.push(pair); continue; }
    const value = isWord(name) ? PLAN.words[name].indexOf(text) : Number(text);
    const whole = !isAmount(name) || name === "tokens";
    if (name === "devices" && text === "follow") state.follow = true;
    else if (!PLAN.controls.includes(name) || !text || !Number.isFinite(value) || value > (isAmount(name) ? Number.MAX_SAFE_INTEGER : PLAN.most)) state.faults.push(pair);
    else if (isWord(name) ? value < 0 : (whole && !Number.isInteger(value)) || (name === "zero" ? ![0, 1, 2, 3].includes(value) : value <= 0))
      state.faults.push(pair);
    else {
      state.chosen[name] = value;
      priced.push(name);
    }
  }
  if ("price" in PLAN.own && !priced.includes("price")) state.chosen.price = PLAN.offers[state.chosen.accelerator].price;
  if (priced.includes("data") && !state.follow) {
    state.faults.push(`data=${state.chosen.data}`);
    state.chosen.data = PLAN.own.data;
  }
  state.chosen = settled(state.chosen, state.follow);
  return state;
}

function stated(name, value) {
  if (!isAmount(name)) return String(value);
  return name === "tokens" ? `${value} tokens` : `${shown(name, value)} ${PLAN.units[name][0]}`;
}

// Every key of a plan that the setting gives another value, as `--set` takes it.
function settings(chosen) {
  const found = moved(chosen).map((name) => (isWord(name) ? [name, PLAN.words[name][chosen[name]]] : [PLAN.paths[name], stated(name, chosen[name])]));
  const devices = chosen.data * rest(chosen);
  return devices === PLAN.devices ? found : [["cluster.devices", String(devices)], ...found];
}

function commandLine(chosen) {
  const sets = [...PLAN.overrides, ...settings(chosen).map(([path, text]) => `${path}=${text}`)];
  return ["ledger show", quoted(PLAN.file), ...sets.map((text) => `--set ${quoted(text)}`)].join(" ");
}

// The same as YAML. A price is written whole: in a file it has a date and a source, and belongs to a device.
function yaml(chosen) {
  const offer = PLAN.offers[chosen.accelerator], tree = {}, leaves = settings(chosen);
  const price = leaves.findIndex(([path]) => path === PLAN.paths.price);
  const written = price >= 0 ? leaves.splice(price, 1)[0][1] : PLAN.priced && chosen.accelerator ? `${offer.price} USD` : "";
  if (written) {
    const source = price >= 0 ? "typed into a report" : "as in a report";
    leaves.push(["assumptions.price", `{per_device_hour: ${written}, date: ${offer.date}, source: ${source}}`]);
  }
  for (const [path, text] of leaves) {
    const [part, key] = path.split(/\.(.*)/);
    (tree[part] ??= []).push(key ? `  ${key}: ${text}` : text);
  }
  const note = PLAN.overrides.length ? [`# on top of ${PLAN.overrides.map((text) => `--set ${quoted(text)}`).join(" ")}`] : [];
  const lines = Object.entries(tree).map(([part, texts]) => (texts[0].startsWith("  ") ? `${part}:\n${texts.join("\n")}` : `${part}: ${texts[0]}`));
  return [...note, ...lines].join("\n");
}

// What answering takes under a load that a reader chooses: the settings of this page were compiled, and are looked up.
// A setting is a list of places, one of each input's values.

const MISSING = "This page does not hold these values together; the command line has them with --set";
const SAFE = /^[\w@%+=:,./-]+$/;
const quoted = (text) => (SAFE.test(text) ? text : `'${text.replace(/'/g, "'\\''")}'`);

// The totals of a setting and its verdict in a few words; nothing of one that is not in the page.
function evaluate(places) {
  const totals = PLAN.settings[places.join(",")];
  return totals && { totals, answer: PLAN.answers[places.join(",")] };
}

// Every key of a plan that a setting gives another value, as `--set` takes it; devices follow tensor parallelism.
function settings(places) {
  const moved = PLAN.inputs.map((input, index) => [input, places[index], PLAN.own[index]]).filter(([, place, own]) => place !== own);
  const devices = moved.filter(([{ name }]) => name === "tensor")
    .map(([{ values }, place, own]) => ["cluster.devices", String((PLAN.devices * values[place]) / values[own])]);
  return [...moved.map(([{ path, texts }, place]) => [path, texts[place]]), ...devices];
}

function commandLine(places) {
  const sets = [...PLAN.overrides, ...settings(places).map(([path, text]) => `${path}=${text}`)];
  return ["ledger show", quoted(PLAN.file), ...sets.map((text) => `--set ${quoted(text)}`)].join(" ");
}

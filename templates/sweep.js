// One value of one key at a time: its grid of densities, and the rows of the tables that have it.
const form = document.getElementById("filter");
const levels = Uint8Array.from(atob(SWEEP.levels), (letter) => letter.charCodeAt(0));
const size = Math.ceil((SWEEP.rows * SWEEP.columns) / 2);
const levelAt = (layer, cell) => {
  const pair = levels[layer * size + (cell >> 1)];
  return cell % 2 ? pair & 15 : pair >> 4;
};

function drawLayer(layer) {
  for (const group of document.querySelectorAll("g.density")) {
    const [left, bottom, across, up] = ["left", "bottom", "across", "up"].map((name) => Number(group.dataset[name]));
    const shapes = [...group.children].map(() => []);
    for (let cell = 0; cell < SWEEP.rows * SWEEP.columns; cell += 1) {
      const level = levelAt(layer, cell);
      if (level) {
        const [row, column] = [Math.floor(cell / SWEEP.columns), cell % SWEEP.columns];
        const [x, y] = [left + column * across, bottom - (row + 1) * up];
        shapes[level - 1].push(`M${x.toFixed(1)} ${y.toFixed(1)}h${across.toFixed(1)}v${up.toFixed(1)}h-${across.toFixed(1)}z`);
      }
    }
    [...group.children].forEach((shape, index) => shape.setAttribute("d", shapes[index].join("")));
  }
}

function labelOf(text) {
  const value = JSON.parse(text);
  return value === null ? "left out" : typeof value === "string" ? value : text;
}

function filterRows(key, value) {
  const hidden = new Set();
  for (const row of document.querySelectorAll("tr[data-values]")) {
    row.hidden = Boolean(key && value) && JSON.parse(row.dataset.values)[key] !== value;
    if (row.hidden && row.dataset.table === "front") hidden.add(row.dataset.number);
  }
  for (const point of document.querySelectorAll("[data-front]")) {
    point.setAttribute("visibility", hidden.has(point.dataset.front) ? "hidden" : "visible");
  }
}

if (form) {
  const [keys, values, count] = ["key", "value", "count"].map((name) => document.getElementById(name));
  const show = () => {
    const chosen = keys.value && values.value;
    const layer = chosen ? SWEEP.first[keys.value] + SWEEP.values[keys.value].indexOf(values.value) : 0;
    drawLayer(layer);
    filterRows(keys.value, values.value);
    count.textContent = `${SWEEP.sums[layer].toLocaleString("en").replaceAll(",", "\u202f")} layouts`;
  };
  keys.addEventListener("change", () => {
    const listed = keys.value ? SWEEP.values[keys.value] : [];
    values.replaceChildren(new Option("any", ""), ...listed.map((text) => new Option(labelOf(text), text)));
    values.disabled = !listed.length;
    show();
  });
  values.addEventListener("change", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  show();
}

"use strict";
// Sorts a table by a column's data-sort values, or its text; the order of equal rows is kept.
function sortBy(table, index, descending) {
  const body = table.tBodies[0];
  const key = (row) => {
    const cell = row.cells[index];
    const value = cell.dataset.sort ?? cell.textContent.trim();
    const number = Number(value);
    return value === "" || Number.isNaN(number) ? value : number;
  };
  const compare = (a, b) => {
    const [x, y] = [key(a), key(b)];
    if (typeof x === typeof y) return typeof x === "number" ? x - y : x.localeCompare(y);
    return typeof x === "number" ? -1 : 1;
  };
  const rows = [...body.rows].sort(compare);
  body.append(...(descending ? rows.reverse() : rows));
}

for (const table of document.querySelectorAll("table[data-sortable]")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, index) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const descending = head.ariaSort ? head.ariaSort === "ascending" : head.classList.contains("number");
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      sortBy(table, index, descending);
    });
  });
}

// A table that is wider than its place says how many of its columns are out of sight.
const tellHidden = (region) => {
  const note = region.nextElementSibling;
  const heads = [...region.querySelectorAll("thead th")];
  const { left, right } = region.getBoundingClientRect();
  const hidden = heads.filter((head) => {
    const box = head.getBoundingClientRect();
    return box.width > 0 && (box.right > right + 2 || box.left < left - 2);
  }).length;
  note.hidden = hidden === 0;
  note.textContent = hidden ? `${hidden} of ${heads.length} columns hidden: scroll the table sideways.` : "";
};

for (const region of document.querySelectorAll(".scroll")) {
  const note = document.createElement("p");
  note.className = "beyond";
  note.hidden = true;
  region.after(note);
  region.addEventListener("scroll", () => tellHidden(region), { passive: true });
  new ResizeObserver(() => tellHidden(region)).observe(region);
}

// The theme follows the system until the reader chooses; a page from a file may be refused storage.
const theme = document.getElementById("theme");
const root = document.documentElement;
const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
const show = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
try { const kept = localStorage.getItem("ledger-theme"); if (kept) root.dataset.theme = kept; } catch { /* no storage */ }
theme.hidden = false;
theme.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  try { localStorage.setItem("ledger-theme", root.dataset.theme); } catch { /* no storage */ }
  show();
});
system.addEventListener("change", show);
show();

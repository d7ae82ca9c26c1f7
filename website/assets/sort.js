// Tables are sorted by the column whose head is clicked, numbers by size, and the other way round by the next click.
const number = (text) => Number.parseFloat(text.replace(/[,† ]/g, ""));

function order(a, b) {
  const [x, y] = [number(a), number(b)];
  if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1; // dashes and words come last
  return x - y || a.localeCompare(b);
}

function sortBy(head, column) {
  const down = head.getAttribute("aria-sort") === "ascending";
  const body = head.closest("table").tBodies[0];
  const text = (row) => row.cells[column].textContent.trim();
  const rows = [...body.rows].sort((a, b) => order(text(a), text(b)));
  for (const each of head.parentElement.cells) each.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  body.append(...(down ? rows.reverse() : rows));
}

for (const table of document.querySelectorAll(".md-typeset table:not([class])")) {
  const rows = [...(table.tBodies[0]?.rows ?? [])];
  // A first cell that is empty belongs to the row above it, and prose is in an order of its own.
  if (rows.length < 3 || rows.some((row) => !row.cells[0].textContent.trim()) || table.querySelector(".sentence")) continue;
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.tabIndex = 0;
    head.title = "sort by this column";
    head.addEventListener("click", () => sortBy(head, column));
    head.addEventListener("keydown", (event) => event.key === "Enter" && sortBy(head, column));
  });
}

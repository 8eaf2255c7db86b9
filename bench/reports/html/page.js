"use strict";
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  heads.forEach((head, at) => {
    head.querySelector("button")?.addEventListener("click", () => {
      const order = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      const side = order === "ascending" ? 1 : -1;
      const key = (row) => {
        const cell = row.cells[at];
        if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
        if (!head.classList.contains("n")) return cell.textContent;
        const number = parseFloat(cell.textContent);
        return Number.isNaN(number) ? null : number;
      };
      const compare = (a, b) => {
        if (a === null || b === null) return (a === null) - (b === null);
        return side * (typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true }));
      };
      const keyed = [...body.rows].map((row) => [key(row), row]);
      keyed.sort((one, other) => compare(one[0], other[0]));
      body.append(...keyed.map((pair) => pair[1]));
      heads.forEach((one) => one.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
    });
  });
}

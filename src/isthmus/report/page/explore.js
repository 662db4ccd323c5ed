"use strict";

// Controls that choose among what was measured; report/figures/figure.py describes the data.
(() => {
  const { figures, draw } = window.isthmus;

  function move(control) {
    const names = control.dataset.moves.split(" ");
    const { tables } = figures[names[0]];
    const choice = Number(control.value);
    for (const name of names) {
      for (const mark of figures[name].marks) {
        for (const [attribute, table] of Object.entries(mark.tables || {})) {
          mark[attribute] = tables[table][choice];
        }
      }
      draw(name);
    }
    const words = tables.words[choice];
    if (control.type === "range") control.setAttribute("aria-valuetext", words);
    document.getElementById(control.dataset.says).textContent = words;
  }

  function show(select) {
    for (const { value } of select.options) {
      const part = document.getElementById(value);
      part.hidden = value !== select.value;
      if (!part.hidden) part.querySelectorAll(".plot").forEach((plot) => draw(plot.id));
    }
  }

  document.querySelectorAll("[data-moves]").forEach((control) => {
    control.addEventListener(control.type === "range" ? "input" : "change", () => move(control));
  });
  document.querySelectorAll("[data-shows]").forEach((select) => {
    select.addEventListener("change", () => show(select));
  });
})();

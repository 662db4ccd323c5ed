"use strict";

// Controls that choose among what was measured; report/figures/theme.py describes the data.
(() => {
  const { figures, draw } = window.isthmus;

  function put(trace, attribute, value) {
    const words = attribute.split(".");
    const last = words.pop();
    words.reduce((part, word) => (part[word] = part[word] || {}), trace)[last] = value;
  }

  function move(control) {
    const names = control.dataset.moves.split(" ");
    const { tables } = figures[names[0]].layout.meta;
    const choice = Number(control.value);
    for (const name of names) {
      for (const trace of figures[name].data) {
        const from = (trace.meta && trace.meta.from) || {};
        for (const [attribute, table] of Object.entries(from)) {
          put(trace, attribute, tables[table][choice]);
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
